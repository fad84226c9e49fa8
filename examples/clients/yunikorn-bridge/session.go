package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/api"
	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// barrierApplication is an application that no core knows. The core refuses an ask of it, after everything that
// was sent on the stream before. It counts the refusal as no fault.
const barrierApplication = "evenhand.io/barrier"

// session is one registration with its three streams.
//
// An in-process core handles calls in the order in which they are made. Three streams keep no order among each
// other, so the writer waits where the order matters: see write.
type session struct {
	rmID     string
	callback api.ResourceManagerCallback
	options  Options
	ctx      context.Context
	cancel   context.CancelFunc

	nodes        grpc.BidiStreamingClient[si.NodeRequest, si.NodeResponse]
	applications grpc.BidiStreamingClient[si.ApplicationRequest, si.ApplicationResponse]
	allocations  grpc.BidiStreamingClient[si.AllocationRequest, si.AllocationResponse]

	mu      sync.Mutex
	changed *sync.Cond
	queue   []proto.Message
	// unanswered holds each node, application and barrier that was sent and has no answer yet.
	unanswered map[string]bool
	// answers are calls of the resource manager that are still to be made, in the order of arrival.
	answers []func() error
	failure error
	pods    pods
	wake    chan struct{}

	// The writer's own.
	barriers int
	running  string // the partition of an existing allocation that was sent since the last barrier
}

func open(
	client si.SchedulerClient, rmID string, callback api.ResourceManagerCallback, options Options,
) (*session, error) {
	s := &session{
		rmID: rmID, callback: callback, options: options,
		unanswered: map[string]bool{}, pods: newPods(), wake: make(chan struct{}, 1),
	}
	s.changed = sync.NewCond(&s.mu)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	var errs [6]error
	s.nodes, errs[0] = client.UpdateNode(s.ctx)
	s.applications, errs[1] = client.UpdateApplication(s.ctx)
	s.allocations, errs[2] = client.UpdateAllocation(s.ctx)
	if err := errors.Join(errs[:]...); err != nil {
		s.cancel()
		return nil, err
	}
	// A stream belongs to the manager that its first message names, and gets answers from then on.
	errs[3] = s.nodes.Send(&si.NodeRequest{RmID: rmID})
	errs[4] = s.applications.Send(&si.ApplicationRequest{RmID: rmID})
	errs[5] = s.allocations.Send(&si.AllocationRequest{RmID: rmID})
	if err := errors.Join(errs[:]...); err != nil {
		s.cancel()
		return nil, err
	}
	return s, nil
}

func (s *session) start() {
	go s.writeAll()
	go s.screenAll()
	go s.deliverAll()
	go readAll(s, s.nodes, s.nodesAnswered)
	go readAll(s, s.applications, s.applicationsAnswered)
	go readAll(s, s.allocations, s.allocationsAnswered)
}

// report takes a message of the resource manager. It does not wait for the core, so a callback may call it.
func (s *session) report(message proto.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return fmt.Errorf("%w (%w)", ErrNoSession, s.failure)
	}
	switch request := message.(type) {
	case *si.AllocationRequest:
		message = s.pods.reported(request)
		if len(request.GetReleases().GetAllocationsToRelease()) > 0 {
			s.screenAgain()
		}
	case *si.ApplicationRequest:
		s.pods.removed(request)
	case *si.NodeRequest:
		if s.pods.nodesChanged(request) {
			s.screenAgain()
		}
	}
	for _, part := range parts(message) {
		s.enqueue(part)
	}
	return nil
}

// enqueue puts a message behind all others; the caller holds the lock.
func (s *session) enqueue(message proto.Message) {
	s.queue = append(s.queue, message)
	s.changed.Broadcast()
}

// end ends the session once, and returns whether this call did.
func (s *session) end(why error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return false
	}
	s.failure = why
	s.cancel()
	s.changed.Broadcast()
	return true
}

// lose ends the session because the core did, and says so.
func (s *session) lose(why error) {
	if s.end(why) {
		s.options.Lost(why)
	}
}

func (s *session) writeAll() {
	for {
		message := s.next()
		if message == nil {
			return
		}
		if err := s.write(message); err != nil {
			s.lose(err)
			return
		}
	}
}

func (s *session) next() proto.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 && s.failure == nil {
		s.changed.Wait()
	}
	if s.failure != nil {
		return nil
	}
	message := s.queue[0]
	s.queue = s.queue[1:]
	return message
}

// write sends one message, after what it builds on:
//   - allocations after the nodes and applications that were sent before are accepted;
//   - a node that opens after the allocations that were sent before are counted, because otherwise their
//     capacity would be given away.
//
// When a stream breaks, the reason comes from reading it. An error of Send is only io.EOF.
func (s *session) write(message proto.Message) error {
	switch request := message.(type) {
	case *si.NodeRequest:
		if opens(request) && s.running != "" {
			if err := s.barrier(); err != nil {
				return err
			}
		}
		for _, node := range request.GetNodes() {
			if isNew(node) {
				s.expect("node " + node.GetNodeID())
			}
		}
		_ = s.nodes.Send(request)
	case *si.ApplicationRequest:
		for _, application := range request.GetNew() {
			s.expect("application " + application.GetApplicationID())
		}
		_ = s.applications.Send(request)
	case *si.AllocationRequest:
		for _, allocation := range request.GetAllocations() {
			if allocation.GetNodeID() != "" {
				s.running = partitionOf(allocation.GetPartitionName())
			}
		}
		if err := s.answered(); err != nil {
			return err
		}
		_ = s.allocations.Send(request)
	}
	return nil
}

// barrier waits until the core has handled everything that was sent on the stream of allocations.
func (s *session) barrier() error {
	s.barriers++
	key := fmt.Sprintf("%s-%d", barrierApplication, s.barriers)
	s.expect(key)
	_ = s.allocations.Send(&si.AllocationRequest{RmID: s.rmID, Allocations: []*si.Allocation{{
		AllocationKey: key, ApplicationID: barrierApplication, PartitionName: s.running,
		ResourcePerAlloc: &si.Resource{Resources: map[string]*si.Quantity{"pods": {Value: 1}}},
	}}})
	s.running = ""
	return s.answered()
}

func (s *session) expect(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unanswered[what] = true
}

func (s *session) got(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.unanswered[what]
	delete(s.unanswered, what)
	s.changed.Broadcast()
	return known
}

// answered waits until the core has answered everything for which it owes an answer.
func (s *session) answered() error {
	late := false
	timer := time.AfterFunc(s.options.Patience, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		late = true
		s.changed.Broadcast()
	})
	defer timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.unanswered) > 0 && s.failure == nil && !late {
		s.changed.Wait()
	}
	if len(s.unanswered) > 0 && s.failure == nil {
		return fmt.Errorf("the core has not answered %d reports for %s", len(s.unanswered), s.options.Patience)
	}
	return nil
}

// readAll reads a stream to its end, and loses the session with it. Calls of the resource manager may take long,
// and the writer waits for answers. So a call is only noted here.
func readAll[Q, A any](s *session, stream grpc.BidiStreamingClient[Q, A], read func(*A) func() error) {
	for {
		answer, err := stream.Recv()
		if err != nil { // also after the end of the session, when nobody waits for the answer
			s.lose(fmt.Errorf("the core ended the session: %w", err))
			return
		}
		call := read(answer)
		s.mu.Lock()
		s.answers = append(s.answers, call)
		s.changed.Broadcast()
		s.mu.Unlock()
	}
}

// deliverAll makes the calls of the resource manager one after the other, as a core in its process does.
func (s *session) deliverAll() {
	for {
		s.mu.Lock()
		for len(s.answers) == 0 && s.failure == nil {
			s.changed.Wait()
		}
		if s.failure != nil {
			s.mu.Unlock()
			return
		}
		call := s.answers[0]
		s.answers = s.answers[1:]
		s.mu.Unlock()
		if err := call(); err != nil {
			s.options.Log.Error("the resource manager could not take an answer", "error", err)
		}
	}
}

func (s *session) nodesAnswered(response *si.NodeResponse) func() error {
	for _, node := range response.GetAccepted() {
		s.got("node " + node.GetNodeID())
	}
	for _, node := range response.GetRejected() {
		s.got("node " + node.GetNodeID())
	}
	return func() error { return s.callback.UpdateNode(response) }
}

func (s *session) applicationsAnswered(response *si.ApplicationResponse) func() error {
	for _, application := range response.GetAccepted() {
		s.got("application " + application.GetApplicationID())
	}
	for _, application := range response.GetRejected() {
		s.got("application " + application.GetApplicationID())
	}
	return func() error { return s.callback.UpdateApplication(response) }
}

// isNew returns whether the core answers the report of a node.
func isNew(node *si.NodeInfo) bool {
	action := node.GetAction()
	return action == si.NodeInfo_CREATE || action == si.NodeInfo_CREATE_DRAIN
}

// opens returns whether a node of the request takes pods from now on.
func opens(request *si.NodeRequest) bool {
	for _, node := range request.GetNodes() {
		if node.GetAction() == si.NodeInfo_CREATE || node.GetAction() == si.NodeInfo_DRAIN_TO_SCHEDULABLE {
			return true
		}
	}
	return false
}

func partitionOf(name string) string {
	if name == "" {
		return "default"
	}
	return name
}
