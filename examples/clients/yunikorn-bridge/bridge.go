// Package bridge lets a resource manager use an Evenhand core in another process.
//
// The resource manager is written against the published scheduler interface of Apache YuniKorn, as YuniKorn's
// Kubernetes shim is. The bridge gives it an api.SchedulerAPI. It sends the reports of the resource manager
// on the three streams of si.v1.Scheduler, and calls the resource manager back with the answers. Some facts
// have no field in the published messages, such as which nodes suit a pod. The bridge asks the resource
// manager for them in this process and adds them to the messages: see placements.go and screening.go.
//
// An in-process core cannot be lost, and the interface has no call for it. The bridge therefore reports a lost
// core to Options.Lost. From then on every call fails until the resource manager registers again and reports
// everything, as the interface demands. A program that cannot do this ends, and reports everything when it
// starts again.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/api"
	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// ErrNoSession is the error of each call before a registration and after the core was lost.
var ErrNoSession = errors.New("no session with the core: register, and report everything again")

var errAgain = errors.New("the resource manager registered again")
var errStopped = errors.New("the bridge was stopped")

// Bridge is the api.SchedulerAPI of a core in another process. One Bridge serves one resource manager.
type Bridge struct {
	options  Options
	conn     *grpc.ClientConn
	instance string

	mu      sync.Mutex
	session *session
}

var _ api.SchedulerAPI = &Bridge{}

// New returns a bridge to the core of the options. The bridge connects when the resource manager registers.
func New(options Options) (*Bridge, error) {
	options = options.withDefaults()
	conn, err := options.dial()
	if err != nil {
		return nil, err
	}
	// In Kubernetes this is the name of the pod, which stays when its container restarts.
	host, _ := os.Hostname()
	return &Bridge{options: options, conn: conn, instance: host}, nil
}

// RegisterResourceManager registers, waits for the core if need be, and opens the streams.
//
// A configuration with errors is refused, and the error names its lines. Without an `instance` in BuildInfo the
// name of the host is sent as one. The core may then have two hosts with one rmID. The older one cannot return
// while the younger one is connected, even after a restart.
func (b *Bridge) RegisterResourceManager(
	request *si.RegisterResourceManagerRequest, callback api.ResourceManagerCallback,
) (*si.RegisterResourceManagerResponse, error) {
	b.leave(errAgain)
	named := proto.Clone(request).(*si.RegisterResourceManagerRequest)
	named.BuildInfo = maps.Clone(request.GetBuildInfo())
	if named.BuildInfo == nil {
		named.BuildInfo = map[string]string{}
	}
	if named.BuildInfo["instance"] == "" {
		named.BuildInfo["instance"] = b.instance
	}
	ctx, cancel := context.WithTimeout(context.Background(), b.options.Patience)
	defer cancel()
	client := si.NewSchedulerClient(b.conn)
	response, err := client.RegisterResourceManager(ctx, named, grpc.WaitForReady(true))
	if err != nil {
		return nil, fmt.Errorf("the core refused the registration: %w", err)
	}
	s, err := open(client, request.GetRmID(), callback, b.options)
	if err != nil {
		return nil, fmt.Errorf("the core refused a stream: %w", err)
	}
	b.mu.Lock()
	b.session = s
	b.mu.Unlock()
	s.start()
	return response, nil
}

// UpdateAllocation sends asks, allocations and releases.
func (b *Bridge) UpdateAllocation(request *si.AllocationRequest) error { return b.report(request) }

// UpdateApplication sends new and removed applications.
func (b *Bridge) UpdateApplication(request *si.ApplicationRequest) error { return b.report(request) }

// UpdateNode sends nodes and their changes.
func (b *Bridge) UpdateNode(request *si.NodeRequest) error { return b.report(request) }

// UpdateConfiguration applies a queue configuration. For a text that the core refuses, the error names each
// problem with its line. The configuration in force stays.
func (b *Bridge) UpdateConfiguration(request *si.UpdateConfigurationRequest) error {
	ctx, cancel := context.WithTimeout(context.Background(), b.options.Patience)
	defer cancel()
	warnings, err := apply(ctx, b.conn, request)
	for _, warning := range warnings {
		b.options.Log.Warn("queue configuration", "problem", warning)
	}
	return err
}

// Stop ends the session and the connection.
func (b *Bridge) Stop() {
	b.leave(errStopped)
	_ = b.conn.Close()
}

func (b *Bridge) report(message proto.Message) error {
	b.mu.Lock()
	s := b.session
	b.mu.Unlock()
	if s == nil {
		return ErrNoSession
	}
	return s.report(message)
}

// leave ends the session, if there is one, without a call of Options.Lost.
func (b *Bridge) leave(why error) {
	b.mu.Lock()
	s := b.session
	b.session = nil
	b.mu.Unlock()
	if s != nil {
		s.end(why)
	}
}

// Options are the address of a core, the credentials, and what the bridge does for its resource manager.
type Options struct {
	// Address of the core, such as "127.0.0.1:50051".
	Address string
	// Files of the connection. All empty: no TLS, for a core on the loopback.
	Files Files
	// Lost is called once for each session that the core ended, or whose connection broke. Nil: the process
	// ends.
	Lost func(error)
	// Patience is the longest wait for the answer to a registration, a configuration or a report. 0: 1 minute.
	Patience time.Duration
	// Recheck is the time after which nodes that did not suit a waiting ask are tried again. 0: 1 minute,
	// because the core avoids a node for that long after a refusal.
	Recheck time.Duration
	// Log takes what the bridge has to say. Nil: slog.Default().
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Patience == 0 {
		o.Patience = time.Minute
	}
	if o.Recheck == 0 {
		o.Recheck = time.Minute
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Lost == nil {
		log := o.Log
		o.Lost = func(err error) {
			log.Error("the core is lost, and the resource manager cannot report again: the process ends", "error", err)
			os.Exit(1)
		}
	}
	return o
}
