package bridge

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
)

var listening = regexp.MustCompile(`listening on (\S+)`)

// core is `evenhand serve` in a process of its own.
type core struct {
	address string
	process *exec.Cmd
}

// startCore starts the program that EVENHAND names, and ends it with the test.
func startCore(t *testing.T, flags ...string) *core {
	t.Helper()
	return startCoreAt(t, "127.0.0.1:0", flags...)
}

func startCoreAt(t *testing.T, listen string, flags ...string) *core {
	t.Helper()
	program := os.Getenv("EVENHAND")
	if program == "" {
		t.Skip("EVENHAND does not name the program evenhand")
	}
	c := &core{process: exec.Command(program, append([]string{"serve", "--listen", listen}, flags...)...)}
	output, err := c.process.StdoutPipe()
	must(t, err)
	c.process.Stderr = c.process.Stdout
	must(t, c.process.Start())
	t.Cleanup(func() { c.end(syscall.SIGTERM) })
	lines := bufio.NewReader(output)
	said := ""
	for c.address == "" {
		line, err := lines.ReadString('\n')
		said += line
		if err != nil {
			t.Fatalf("the core ended before it listened:\n%s", said)
		}
		if found := listening.FindStringSubmatch(line); found != nil {
			c.address = found[1]
		}
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return c
}

func (c *core) end(signal syscall.Signal) {
	if c.process.ProcessState == nil {
		_ = c.process.Process.Signal(signal)
		_ = c.process.Wait()
	}
}

// freePort returns an address on which a core can be started again.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { must(t, listener.Close()) }()
	return fmt.Sprint(listener.Addr())
}
