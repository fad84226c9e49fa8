package bridge

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// names returns the nodes in a NodeConstraints message by their field.
func names(constraints []byte) map[protowire.Number][]string {
	found := map[protowire.Number][]string{}
	each(constraints, func(number protowire.Number, _ uint64, data []byte) {
		found[number] = append(found[number], string(data))
	})
	return found
}

func many(prefix string, count int) []string {
	found := make([]string, count)
	for i := range found {
		found[i] = fmt.Sprint(prefix, i)
	}
	return found
}

func TestNodeConstraintsAreTheShorterListAndNeverTooLong(t *testing.T) {
	for _, one := range []struct {
		suited, excluded  int
		allowed, excludes int
	}{
		{3, 0, 0, 0},
		{0, 3, 0, 3},
		{1, 3, 1, 0},
		{3, 1, 0, 1},
		{0, 6_000, 1, 0},
		{6_000, 7_000, 5_000, 0},
	} {
		found := names(nodeConstraints(many("s", one.suited), many("x", one.excluded)))
		if len(found[fieldAllowedNodes]) != one.allowed || len(found[fieldExcludedNodes]) != one.excludes {
			t.Errorf("%+v: %d allowed, %d excluded", one, len(found[fieldAllowedNodes]), len(found[fieldExcludedNodes]))
		}
	}
}

func TestAReportKeepsTheConstraintsOfItsAsk(t *testing.T) {
	p := newPods()
	ask := func(priority int32) *si.AllocationRequest {
		return &si.AllocationRequest{Allocations: []*si.Allocation{{
			AllocationKey: "one", ApplicationID: "app", Priority: priority,
		}}}
	}
	p.reported(ask(1))
	p.all["one"].constraints = nodeConstraints(nil, []string{"n1"})
	request := ask(2)
	sent := p.reported(request).GetAllocations()[0]
	found := map[protowire.Number][]string{}
	each(sent.ProtoReflect().GetUnknown(), func(number protowire.Number, _ uint64, data []byte) {
		if number == fieldConstraints {
			found = names(data)
		}
	})
	if sent.GetPriority() != 2 || !slices.Equal(found[fieldExcludedNodes], []string{"n1"}) {
		t.Errorf("priority %d, constraints %v", sent.GetPriority(), found)
	}
	if len(request.GetAllocations()[0].ProtoReflect().GetUnknown()) > 0 {
		t.Error("the message of the resource manager was changed")
	}
}

func TestAnApplicationTakesItsPodsWithIt(t *testing.T) {
	p := newPods()
	for _, application := range []string{"a", "b"} {
		p.reported(&si.AllocationRequest{Allocations: []*si.Allocation{{
			AllocationKey: "pod-" + application, ApplicationID: application,
		}}})
	}
	p.removed(&si.ApplicationRequest{Remove: []*si.RemoveApplicationRequest{{ApplicationID: "a", PartitionName: "default"}}})
	if p.all["pod-a"] != nil || p.all["pod-b"] == nil {
		t.Errorf("left: %v", p.all)
	}
}

// The resource manager ended the ask while the core placed it: it would not know the pod any more.
func TestAPlacementThatCrossedAWithdrawalIsDropped(t *testing.T) {
	m := newManager(t)
	s := &session{callback: m, pods: newPods(), unanswered: map[string]bool{}, ctx: context.Background()}
	must(t, s.pass(&si.AllocationResponse{New: []*si.Allocation{{
		AllocationKey: "gone", ApplicationID: "app", NodeID: "n1",
	}}}, nil))
	if len(m.running) > 0 || m.asked > 0 {
		t.Errorf("running %v, asked %d", m.running, m.asked)
	}
}

func TestALargeMessageIsSentInParts(t *testing.T) {
	request := &si.AllocationRequest{RmID: rmID, Releases: &si.AllocationReleasesRequest{
		AllocationsToRelease: []*si.AllocationRelease{{AllocationKey: "old"}},
	}}
	for _, key := range many("pod-", 2_500) {
		request.Allocations = append(request.Allocations, &si.Allocation{AllocationKey: key})
	}
	sent := parts(request)
	all := &si.AllocationRequest{}
	for _, part := range sent {
		one := part.(*si.AllocationRequest)
		if len(one.GetAllocations()) > objectsMax || one.GetRmID() != rmID {
			t.Errorf("%d allocations of manager %q", len(one.GetAllocations()), one.GetRmID())
		}
		if len(one.GetAllocations()) > 0 && len(all.GetReleases().GetAllocationsToRelease()) > 0 {
			t.Error("allocations after releases")
		}
		proto.Merge(all, one)
	}
	if len(all.GetAllocations()) != 2_500 || len(all.GetReleases().GetAllocationsToRelease()) != 1 {
		t.Errorf("%d parts lost something", len(sent))
	}
}
