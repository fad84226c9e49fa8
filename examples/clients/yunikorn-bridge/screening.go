package bridge

import (
	"bytes"
	"slices"
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/common"
	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
	"google.golang.org/protobuf/proto"
)

// A published ask names no nodes. When an ask waits or was refused a node, the bridge asks the resource
// manager about each node once. It tells the core which nodes suit (field 100 of Allocation). Without this,
// an ask that suits no node would be placed and refused for ever, and pods would be evicted for it in vain.
//
// Some asks need no look, such as a DaemonSet's pod: a published tag names the node that the ask requires.
//
// The question is asked again when a node comes or changes, and when a pod ends. It is also asked after
// Options.Recheck, because the interface reports no change of labels and taints.

const (
	// refusalsBetween is the number of refusals of one ask after which its nodes are looked at again. The core
	// itself avoids 32 nodes.
	refusalsBetween = 16
	// namesMax is the largest number of nodes that the core takes in one list.
	namesMax = 5_000
	// restMin and restShare are the pause after a look at all asks with constraints. It is at least a second,
	// and nine times as long as the look took. So the looks take at most a tenth of a processor.
	restMin   = time.Second
	restShare = 9

	requiredNode = common.DomainYuniKorn + common.KeyRequiredNode
)

// suitability is what the bridge knows of the nodes of one ask.
type suitability struct {
	// constraints is the NodeConstraints message that the core has. Empty: each node suits.
	constraints []byte
	screened    bool
	due         bool
	refusals    int // since the last look
	refusedAt   map[string]time.Time
}

// constrained returns the report of the ask with its node constraints.
func (p *pod) constrained() *si.Allocation {
	told := proto.Clone(p.reported).(*si.Allocation)
	withConstraints(told, p.constraints)
	return told
}

// refused records a refused node; the caller holds the lock.
func (s *session) refused(pod *pod, node string) {
	if pod.refusedAt == nil {
		pod.refusedAt = map[string]time.Time{}
	}
	pod.refusedAt[node] = time.Now()
	pod.refusals++
	if !pod.screened || pod.refusals >= refusalsBetween {
		s.screenLater(pod)
	}
}

// waits makes the nodes of an ask due for a first look, because the core has not placed it.
func (s *session) waits(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod := s.pods.all[key]; pod != nil && !pod.placed && !pod.screened {
		s.screenLater(pod)
	}
}

// screenLater makes the nodes of an ask due for a look; the caller holds the lock.
func (s *session) screenLater(pod *pod) {
	if !pod.due && pod.reported.GetAllocationTags()[requiredNode] == "" {
		pod.due = true
		s.pods.due = append(s.pods.due, pod.reported.GetAllocationKey())
		s.wakeScreening()
	}
}

// screenAgain makes all asks with constraints due for a look, soon; the caller holds the lock.
func (s *session) screenAgain() {
	s.pods.stale = true
	s.wakeScreening()
}

func (s *session) wakeScreening() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *session) screenAll() {
	recheck := time.NewTicker(s.options.Recheck)
	defer recheck.Stop()
	var rest <-chan time.Time // nil: a look at all asks may begin
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
		case <-rest:
			rest = nil
		case <-recheck.C:
			s.mu.Lock()
			s.pods.stale = true
			s.mu.Unlock()
		}
		s.screenDue()
		if rest == nil && s.allDue() {
			began := time.Now()
			s.screenDue()
			rest = time.After(max(restMin, restShare*time.Since(began)))
		}
	}
}

// allDue makes all waiting asks with constraints due if something has changed, and returns whether there are any.
func (s *session) allDue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods.stale {
		s.pods.stale = false
		for _, pod := range s.pods.all {
			if !pod.placed && len(pod.constraints) > 0 {
				s.screenLater(pod)
			}
		}
	}
	return len(s.pods.due) > 0
}

func (s *session) screenDue() {
	for s.ctx.Err() == nil {
		s.mu.Lock()
		due := s.pods.due
		s.pods.due = nil
		s.mu.Unlock()
		if len(due) == 0 {
			return
		}
		for _, key := range due {
			s.screen(key)
		}
	}
}

// screen asks which nodes suit an ask, and tells the core when that has changed.
func (s *session) screen(key string) {
	pod, nodes := s.toScreen(key)
	if pod == nil {
		return
	}
	var suited, excluded []string
	for _, node := range nodes {
		if s.suits(pod, key, node) {
			suited = append(suited, node)
		} else {
			excluded = append(excluded, node)
		}
	}
	constraints := nodeConstraints(suited, excluded)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods.all[key] != pod || pod.placed || bytes.Equal(constraints, pod.constraints) {
		return
	}
	pod.constraints = constraints
	s.enqueue(&si.AllocationRequest{RmID: s.rmID, Allocations: []*si.Allocation{pod.constrained()}})
}

func (s *session) toScreen(key string) (*pod, []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod := s.pods.all[key]
	if pod == nil {
		return nil, nil
	}
	pod.due = false
	if pod.placed {
		return nil, nil
	}
	pod.screened = true
	pod.refusals = 0
	partition := partitionOf(pod.reported.GetPartitionName())
	var nodes []string
	for node, of := range s.pods.nodes {
		if of == partition {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return pod, nodes
}

// suits asks the resource manager about one node. The resource manager may have refused the node lately and
// say now that it suits. This happens with volumes, which only the call for a placement checks. Such a node
// does not suit yet.
func (s *session) suits(pod *pod, key, node string) bool {
	err := s.callback.Predicates(&si.PredicatesArgs{AllocationKey: key, NodeID: node})
	s.mu.Lock()
	defer s.mu.Unlock()
	at, refused := pod.refusedAt[node]
	if err != nil || refused && time.Since(at) >= s.options.Recheck {
		delete(pod.refusedAt, node)
		refused = false
	}
	return err == nil && !refused
}
