// Command bench plays a script of prepared messages to a core and counts what comes back.
//
// Run as `bench ADDRESS` with the script as JSON on standard input; prints one JSON line with the figures.
// It makes no messages and reads none: messages come as bytes, answers are counted by field. So it costs
// little beside the core, and says how much. tests/bench/script.py says what a script is.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

const (
	patience   = 15 * time.Minute
	messageMax = 1 << 30
	memoryMax  = 4 << 30
)

// script is what is played, step after step; what is measured begins with the step `measured`.
type script struct {
	Pid      int    `json:"pid"`
	Measured int    `json:"measured"`
	Steps    []step `json:"steps"`
	// Epoch of an elected shim, which its streams name; 0 for none.
	Epoch int `json:"epoch"`
}

// step sends messages to one method and ends with the until-th counted object of its answers.
type step struct {
	Method   string   `json:"method"`
	Unary    bool     `json:"unary"`
	Messages [][]byte `json:"messages"`
	Counted  int      `json:"counted"`
	Refused  int      `json:"refused"`
	Until    int      `json:"until"`
	// After holds for each message how many must have been counted before it goes; empty: all go at once.
	After []int `json:"after"`
	// Only: what a counted object must contain.
	Only []byte `json:"only"`
	// Confirmed is the field of the releases that are confirmed as they come, Manager what goes with them.
	Confirmed int    `json:"confirmed"`
	Manager   []byte `json:"manager"`
}

// figures are of what was measured: when it began (Unix seconds), seconds of wall, and of CPU on either side.
type figures struct {
	Begun     float64   `json:"begun"`
	Seconds   float64   `json:"seconds"`
	ClientCPU float64   `json:"client_cpu"`
	ServerCPU float64   `json:"server_cpu"`
	WaitsMs   []float64 `json:"waits_ms"`
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: bench ADDRESS < SCRIPT")
	}
	var played script
	if err := json.NewDecoder(os.Stdin).Decode(&played); err != nil {
		log.Fatal(err)
	}
	// What is received is small and the process short: collecting it would only take time from the core.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryMax)
	found, err := play(os.Args[1], &played)
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		log.Fatal(err)
	}
}

func play(address string, played *script) (*figures, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(asBytes{}), grpc.MaxCallRecvMsgSize(messageMax)))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if played.Epoch > 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, "evenhand-epoch", strconv.Itoa(played.Epoch))
	}
	player := &player{ctx: ctx, conn: conn, streams: map[string]*stream{}, waits: []float64{}}
	var watch *stopwatch
	for at := range played.Steps {
		if at == played.Measured {
			watch = start(played.Pid)
		}
		if err := player.play(&played.Steps[at]); err != nil {
			return nil, err
		}
	}
	found := watch.stop()
	found.WaitsMs = player.waits
	return found, player.end()
}
