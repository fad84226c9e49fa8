// Package allocations drives a running core as a plain client of the newest published generation,
// in which asks are allocations without a node.
package allocations

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	manager   = "go-allocations"
	partition = "default"
	patience  = 30 * time.Second
	queues    = `
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: a
`
)

// session is one registered client with its three streams.
type session struct {
	t            *testing.T
	allocations  si.Scheduler_UpdateAllocationClient
	applications si.Scheduler_UpdateApplicationClient
	nodes        si.Scheduler_UpdateNodeClient
}

// connect dials the core of EVENHAND_CORE, registers and opens the streams.
func connect(t *testing.T) *session {
	t.Helper()
	address := os.Getenv("EVENHAND_CORE")
	if address == "" {
		t.Skip("EVENHAND_CORE names no core")
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	client := si.NewSchedulerClient(conn)
	s := &session{t: t}
	_, err = client.RegisterResourceManager(ctx, &si.RegisterResourceManagerRequest{
		RmID: manager, Version: "1.9.0", PolicyGroup: "queues", Config: queues,
	})
	must(t, err)
	s.nodes, err = client.UpdateNode(ctx)
	must(t, err)
	s.applications, err = client.UpdateApplication(ctx)
	must(t, err)
	s.allocations, err = client.UpdateAllocation(ctx)
	must(t, err)
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func cores(milli int64) *si.Resource {
	return &si.Resource{Resources: map[string]*si.Quantity{"vcore": {Value: milli}}}
}

// node reports a node behind the published barrier and waits until it is accepted.
func (s *session) node(name string, milli int64) {
	s.t.Helper()
	must(s.t, s.nodes.Send(&si.NodeRequest{RmID: manager, Nodes: []*si.NodeInfo{{
		NodeID: name, Action: si.NodeInfo_CREATE_DRAIN, SchedulableResource: cores(milli),
	}}}))
	for {
		answer, err := s.nodes.Recv()
		must(s.t, err)
		for _, node := range answer.GetRejected() {
			s.t.Fatalf("node %s rejected: %s", node.GetNodeID(), node.GetReason())
		}
		for _, node := range answer.GetAccepted() {
			if node.GetNodeID() == name {
				return
			}
		}
	}
}

// open lifts the barrier of a node.
func (s *session) open(name string) {
	s.t.Helper()
	must(s.t, s.nodes.Send(&si.NodeRequest{RmID: manager, Nodes: []*si.NodeInfo{{
		NodeID: name, Action: si.NodeInfo_DRAIN_TO_SCHEDULABLE,
	}}}))
}

// application adds an application and waits until it is accepted.
func (s *session) application(name string) {
	s.t.Helper()
	must(s.t, s.applications.Send(&si.ApplicationRequest{RmID: manager, New: []*si.AddApplicationRequest{{
		ApplicationID: name, QueueName: "root.a", PartitionName: partition,
		Ugi: &si.UserGroupInformation{User: "ada", Groups: []string{"dev"}},
	}}}))
	for {
		answer, err := s.applications.Recv()
		must(s.t, err)
		for _, app := range answer.GetRejected() {
			s.t.Fatalf("application %s rejected: %s", app.GetApplicationID(), app.GetReason())
		}
		for _, app := range answer.GetAccepted() {
			if app.GetApplicationID() == name {
				return
			}
		}
	}
}

// send reports allocations; without a node they are asks.
func (s *session) send(allocations ...*si.Allocation) {
	s.t.Helper()
	for _, allocation := range allocations {
		allocation.PartitionName = partition
		allocation.ApplicationID = "app"
	}
	must(s.t, s.allocations.Send(&si.AllocationRequest{RmID: manager, Allocations: allocations}))
}

// release says that an allocation has ended.
func (s *session) release(key string) {
	s.t.Helper()
	must(s.t, s.allocations.Send(&si.AllocationRequest{RmID: manager, Releases: &si.AllocationReleasesRequest{
		AllocationsToRelease: []*si.AllocationRelease{{
			PartitionName: partition, ApplicationID: "app", AllocationKey: key,
			TerminationType: si.TerminationType_STOPPED_BY_RM,
		}},
	}}))
}

// placed waits for placements of exactly these keys, in any order, and returns their nodes.
func (s *session) placed(keys ...string) map[string]string {
	s.t.Helper()
	nodes := map[string]string{}
	for len(nodes) < len(keys) {
		answer, err := s.allocations.Recv()
		must(s.t, err)
		for _, refused := range answer.GetRejectedAllocations() {
			s.t.Fatalf("%s rejected: %s", refused.GetAllocationKey(), refused.GetReason())
		}
		for _, allocation := range answer.GetNew() {
			nodes[allocation.GetAllocationKey()] = allocation.GetNodeID()
		}
	}
	for _, key := range keys {
		if _, there := nodes[key]; !there {
			s.t.Fatalf("%s was not placed; placed: %v", key, nodes)
		}
	}
	return nodes
}

// rejected waits for the refusal of one key and returns its reason.
func (s *session) rejected(key string) string {
	s.t.Helper()
	for {
		answer, err := s.allocations.Recv()
		must(s.t, err)
		for _, refused := range answer.GetRejectedAllocations() {
			if refused.GetAllocationKey() == key {
				return refused.GetReason()
			}
		}
		if len(answer.GetNew()) > 0 {
			s.t.Fatalf("unexpected placement: %v", answer.GetNew())
		}
	}
}

func TestPlacesReleasesAndPlacesAgain(t *testing.T) {
	s := connect(t)
	s.node("n1", 4000)
	s.application("app")
	// What runs already comes before the barrier is lifted, as after a restart of the core.
	s.send(&si.Allocation{AllocationKey: "old", ResourcePerAlloc: cores(1000), NodeID: "n1"})
	s.open("n1")

	s.send(
		&si.Allocation{AllocationKey: "one", ResourcePerAlloc: cores(1000)},
		&si.Allocation{AllocationKey: "two", ResourcePerAlloc: cores(2000), Priority: 7, Originator: true,
			PreemptionPolicy: &si.PreemptionPolicy{AllowPreemptSelf: true, AllowPreemptOther: true}},
	)
	for key, node := range s.placed("one", "two") {
		if node != "n1" {
			t.Errorf("%s is on %q, not on n1", key, node)
		}
	}

	// The node is full: the next one waits for the capacity that the release frees.
	s.send(&si.Allocation{AllocationKey: "three", ResourcePerAlloc: cores(2000)})
	s.release("two")
	s.placed("three")
	s.release("old")
	s.send(&si.Allocation{AllocationKey: "four", ResourcePerAlloc: cores(1000)})
	s.placed("four")
}

func TestRefusesWithAReasonAndGoesOn(t *testing.T) {
	s := connect(t)
	s.node("n1", 1000)
	s.open("n1")
	s.application("app")
	s.send(&si.Allocation{AllocationKey: "negative", ResourcePerAlloc: cores(-1)})
	if reason := s.rejected("negative"); reason == "" {
		t.Error("rejected without a reason")
	}
	s.send(&si.Allocation{AllocationKey: "good", ResourcePerAlloc: cores(1)})
	s.placed("good")
}

func TestAManagerThatHasNotRegisteredIsToldSo(t *testing.T) {
	s := connect(t)
	must(t, s.allocations.Send(&si.AllocationRequest{RmID: "nobody", Allocations: []*si.Allocation{{
		AllocationKey: "early", ApplicationID: "app", PartitionName: partition, ResourcePerAlloc: cores(1),
	}}}))
	if reason := s.rejected("early"); reason == "" {
		t.Error("rejected without a reason")
	}
}
