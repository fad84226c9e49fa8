package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// ticksASecond is how the kernel counts CPU time in /proc on every platform that Go runs on.
const ticksASecond = 100

// stopwatch knows wall and both sides' CPU time since its start.
type stopwatch struct {
	pid            int
	begun          time.Time
	client, server float64
}

func start(pid int) *stopwatch {
	return &stopwatch{pid, time.Now(), ownCPU(), cpuOf(pid)}
}

func (w *stopwatch) stop() *figures {
	return &figures{
		Begun:     float64(w.begun.UnixMicro()) / 1e6,
		Seconds:   time.Since(w.begun).Seconds(),
		ClientCPU: ownCPU() - w.client,
		ServerCPU: cpuOf(w.pid) - w.server,
	}
}

func ownCPU() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	spent := time.Duration(used.Utime.Nano() + used.Stime.Nano())
	return spent.Seconds()
}

// cpuOf gives the CPU seconds of a process so far: fields 14 and 15 of its stat, behind a name in parentheses.
func cpuOf(pid int) float64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		panic(err)
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	user, _ := strconv.ParseFloat(string(fields[11]), 64)
	system, _ := strconv.ParseFloat(string(fields[12]), 64)
	return (user + system) / ticksASecond
}
