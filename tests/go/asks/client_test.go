// Package asks drives a running core as a plain client of the published ask generation (early 2023),
// in which asks have messages of their own and the core gives each allocation a UUID.
package asks

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
	manager   = "go-asks"
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
		RmID: manager, Version: "1.2.0", PolicyGroup: "queues", Config: queues,
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

// node reports a node as ready, as that generation does, and waits until it is accepted.
func (s *session) node(name string, milli, occupied int64) {
	s.t.Helper()
	must(s.t, s.nodes.Send(&si.NodeRequest{RmID: manager, Nodes: []*si.NodeInfo{{
		NodeID: name, Action: si.NodeInfo_CREATE, SchedulableResource: cores(milli),
		OccupiedResource: cores(occupied),
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

// ask sends asks of the application.
func (s *session) ask(asks ...*si.AllocationAsk) {
	s.t.Helper()
	for _, ask := range asks {
		ask.PartitionName = partition
		ask.ApplicationID = "app"
	}
	must(s.t, s.allocations.Send(&si.AllocationRequest{RmID: manager, Asks: asks}))
}

// release says that an allocation has ended; that generation names it by its UUID alone.
func (s *session) release(uuid string) {
	s.t.Helper()
	must(s.t, s.allocations.Send(&si.AllocationRequest{RmID: manager, Releases: &si.AllocationReleasesRequest{
		AllocationsToRelease: []*si.AllocationRelease{{
			PartitionName: partition, ApplicationID: "app", UUID: uuid,
			TerminationType: si.TerminationType_STOPPED_BY_RM,
		}},
	}}))
}

// withdraw takes back an ask.
func (s *session) withdraw(key string) {
	s.t.Helper()
	must(s.t, s.allocations.Send(&si.AllocationRequest{RmID: manager, Releases: &si.AllocationReleasesRequest{
		AllocationAsksToRelease: []*si.AllocationAskRelease{{
			PartitionName: partition, ApplicationID: "app", AllocationKey: key,
			TerminationType: si.TerminationType_STOPPED_BY_RM,
		}},
	}}))
}

// placed waits for placements of exactly these keys, in any order.
func (s *session) placed(keys ...string) map[string]*si.Allocation {
	s.t.Helper()
	found := map[string]*si.Allocation{}
	for len(found) < len(keys) {
		answer, err := s.allocations.Recv()
		must(s.t, err)
		for _, refused := range answer.GetRejected() {
			s.t.Fatalf("%s rejected: %s", refused.GetAllocationKey(), refused.GetReason())
		}
		for _, allocation := range answer.GetNew() {
			found[allocation.GetAllocationKey()] = allocation
		}
	}
	for _, key := range keys {
		if _, there := found[key]; !there {
			s.t.Fatalf("%s was not placed; placed: %v", key, found)
		}
	}
	return found
}

func TestAsksArePlacedReleasedAndWithdrawn(t *testing.T) {
	s := connect(t)
	s.node("n1", 4000, 1000)
	s.application("app")
	// A bool in the policy's field 2 is this generation's allowPreemptOther.
	policy := &si.PreemptionPolicy{AllowPreemptSelf: true, AllowPreemptOther: true}
	s.ask(
		&si.AllocationAsk{AllocationKey: "one", ResourceAsk: cores(1000), MaxAllocations: 1},
		&si.AllocationAsk{AllocationKey: "two", ResourceAsk: cores(2000), MaxAllocations: 1,
			Priority: 7, Originator: true, PreemptionPolicy: policy},
	)
	placed := s.placed("one", "two")
	for key, allocation := range placed {
		if allocation.GetNodeID() != "n1" || allocation.GetUUID() == "" {
			t.Errorf("%s: node %q, UUID %q", key, allocation.GetNodeID(), allocation.GetUUID())
		}
	}

	// The node is full, with what others occupy: three waits, is withdrawn, and four gets the capacity.
	s.ask(&si.AllocationAsk{AllocationKey: "three", ResourceAsk: cores(2000), MaxAllocations: 1})
	s.withdraw("three")
	s.ask(&si.AllocationAsk{AllocationKey: "four", ResourceAsk: cores(2000), MaxAllocations: 1})
	s.release(placed["two"].GetUUID())
	s.placed("four")
}

func TestRefusalsComeBackInTheSameGeneration(t *testing.T) {
	s := connect(t)
	s.node("n1", 1000, 0)
	s.application("app")
	s.ask(&si.AllocationAsk{AllocationKey: "many", ResourceAsk: cores(1), MaxAllocations: 2})
	answer, err := s.allocations.Recv()
	must(t, err)
	refused := answer.GetRejected()
	if len(refused) != 1 || refused[0].GetAllocationKey() != "many" || refused[0].GetReason() == "" {
		t.Fatalf("not the refusal of `many` with a reason: %v", answer)
	}
	s.ask(&si.AllocationAsk{AllocationKey: "good", ResourceAsk: cores(1), MaxAllocations: 1})
	s.placed("good")
}
