package bridge

import (
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/protobuf/proto"
)

// schedulingFailed is SCHEDULING_FAILED_ON_RM, which the released module (1.9.0) does not name yet.
const schedulingFailed si.TerminationType = 5

func (s *session) allocationsAnswered(response *si.AllocationResponse) func() error {
	var refused []*si.RejectedAllocation
	for _, rejected := range response.GetRejectedAllocations() {
		if !s.got(rejected.GetAllocationKey()) { // else a barrier
			refused = append(refused, rejected)
		}
	}
	return func() error { return s.pass(response, refused) }
}

// pass checks placements, and passes everything else to the resource manager.
func (s *session) pass(response *si.AllocationResponse, refused []*si.RejectedAllocation) error {
	var events []*si.EventRecord
	states := schedulingStates(response)
	passed := &si.AllocationResponse{RejectedAllocations: refused}
	for _, rejected := range refused {
		s.forget(rejected.GetAllocationKey())
	}
	for _, placed := range response.GetNew() {
		if s.mayRun(placed, &events) {
			passed.New = append(passed.New, placed)
		}
	}
	for _, released := range response.GetReleased() {
		s.released(released)
		passed.Released = append(passed.Released, released)
		if released.GetTerminationType() == si.TerminationType_PREEMPTED_BY_SCHEDULER {
			events = append(events, event(released.GetAllocationKey(), released.GetApplicationID(), released.GetMessage()))
		}
	}
	var err error
	if len(passed.New)+len(passed.Released)+len(passed.RejectedAllocations) > 0 {
		err = s.callback.UpdateAllocation(passed)
	}
	if len(passed.Released) > 0 {
		s.mu.Lock()
		s.screenAgain()
		s.mu.Unlock()
	}
	for _, state := range states {
		s.waits(state.GetAllocationKey())
		s.callback.UpdateContainerSchedulingState(state)
	}
	if len(events) > 0 {
		s.callback.SendEvent(events)
	}
	return err
}

// mayRun asks the resource manager whether the pod of a placement may run on its node. It gives a refused
// placement back. The core then looks for another node and avoids this one for a minute.
//
// A placement that crossed the withdrawal of its ask is dropped: the resource manager has ended it already.
func (s *session) mayRun(placed *si.Allocation, events *[]*si.EventRecord) bool {
	key, node := placed.GetAllocationKey(), placed.GetNodeID()
	if !s.placed(key) {
		return false
	}
	refusal := s.callback.Predicates(&si.PredicatesArgs{AllocationKey: key, NodeID: node, Allocate: true})
	if refusal == nil {
		return true
	}
	*events = append(*events, event(key, placed.GetApplicationID(), "node "+node+" is refused: "+refusal.Error()))
	s.giveBack(placed, refusal.Error())
	return false
}

func (s *session) placed(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod := s.pods.all[key]
	if pod == nil {
		return false
	}
	pod.placed = true
	return true
}

func (s *session) giveBack(placed *si.Allocation, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod := s.pods.all[placed.GetAllocationKey()]
	if pod == nil {
		return // withdrawn meanwhile
	}
	pod.placed = false
	s.enqueue(&si.AllocationRequest{RmID: s.rmID, Releases: &si.AllocationReleasesRequest{
		AllocationsToRelease: []*si.AllocationRelease{{
			PartitionName: placed.GetPartitionName(), ApplicationID: placed.GetApplicationID(),
			AllocationKey: placed.GetAllocationKey(), TerminationType: schedulingFailed, Message: message,
		}},
	}})
	s.refused(pod, placed.GetNodeID())
}

// released drops a pod that the core has ended by itself. A pod that the resource manager has to end first
// stays until it reports the end.
func (s *session) released(release *si.AllocationRelease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod := s.pods.all[release.GetAllocationKey()]
	if pod != nil && (!pod.placed || release.GetTerminationType() == si.TerminationType_STOPPED_BY_RM) {
		delete(s.pods.all, release.GetAllocationKey())
	}
}

func (s *session) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod := s.pods.all[key]; pod != nil && !pod.placed {
		delete(s.pods.all, key)
	}
}

func event(key, application, message string) *si.EventRecord {
	return &si.EventRecord{
		Type: si.EventRecord_REQUEST, ObjectID: key, ReferenceID: application, Message: message,
		TimestampNano: time.Now().UnixNano(),
	}
}

// pods are the asks and allocations that the resource manager reported, and the nodes, each with its partition.
type pods struct {
	all   map[string]*pod
	nodes map[string]string
	due   []string // keys of asks whose nodes are to be looked at
	stale bool     // all asks with constraints are to be looked at again
}

// pod is an ask or an allocation.
type pod struct {
	// reported is the last report of the resource manager.
	reported *si.Allocation
	placed   bool
	suitability
}

func newPods() pods { return pods{all: map[string]*pod{}, nodes: map[string]string{}} }

// reported records a message of the resource manager. It returns the message with the node constraints of its
// asks, because a report without them would lift them.
func (p *pods) reported(request *si.AllocationRequest) *si.AllocationRequest {
	sent := request
	for i, allocation := range request.GetAllocations() {
		key := allocation.GetAllocationKey()
		if allocation.GetApplicationID() == "" {
			continue // a pod of another scheduler
		}
		known := p.all[key]
		if known == nil {
			known = &pod{}
			p.all[key] = known
		}
		known.reported = allocation
		known.placed = known.placed || allocation.GetNodeID() != ""
		if len(known.constraints) > 0 && !known.placed {
			if sent == request {
				sent = proto.Clone(request).(*si.AllocationRequest)
			}
			sent.Allocations[i] = known.constrained()
		}
	}
	for _, release := range request.GetReleases().GetAllocationsToRelease() {
		p.ended(release)
	}
	return sent
}

func (p *pods) ended(release *si.AllocationRelease) {
	if release.GetAllocationKey() == "" {
		p.endedAll(release.GetApplicationID(), release.GetPartitionName())
		return
	}
	if known := p.all[release.GetAllocationKey()]; known != nil && release.GetTerminationType() == schedulingFailed {
		known.placed = false
		return
	}
	delete(p.all, release.GetAllocationKey())
}

func (p *pods) removed(request *si.ApplicationRequest) {
	for _, application := range request.GetRemove() {
		p.endedAll(application.GetApplicationID(), application.GetPartitionName())
	}
}

func (p *pods) endedAll(application, partition string) {
	for key, known := range p.all {
		of := known.reported
		if of.GetApplicationID() == application && partitionOf(of.GetPartitionName()) == partitionOf(partition) {
			delete(p.all, key)
		}
	}
}

// nodesChanged records nodes, and returns whether one of them may suit asks that it did not suit before.
func (p *pods) nodesChanged(request *si.NodeRequest) bool {
	changed := false
	for _, node := range request.GetNodes() {
		switch node.GetAction() {
		case si.NodeInfo_CREATE, si.NodeInfo_CREATE_DRAIN:
			p.nodes[node.GetNodeID()] = nodePartition(node)
			changed = true
		case si.NodeInfo_DECOMISSION:
			delete(p.nodes, node.GetNodeID())
		case si.NodeInfo_UPDATE, si.NodeInfo_DRAIN_TO_SCHEDULABLE:
			changed = true
		}
	}
	return changed
}

func nodePartition(node *si.NodeInfo) string {
	for _, attribute := range []string{"evenhand.io/partition", "si/node-partition"} {
		if name := node.GetAttributes()[attribute]; name != "" {
			return name
		}
	}
	return "default"
}
