package bridge

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/api"
	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
)

const (
	rmID     = "test"
	patience = 60 * time.Second
	queues   = `
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: a
          - name: b
`
)

// manager is a small resource manager: nodes with labels and taints, pods with selectors and tolerations. The
// manager keeps what the core has sent, and confirms what the core orders it to end.
type manager struct {
	t        *testing.T
	bridge   *Bridge
	instance string

	mu      sync.Mutex
	changed *sync.Cond
	nodes   map[string]machine
	pods    map[string]want

	running  map[string]string // node of each pod
	refusals map[string]int    // placements that Predicates refused
	asked    int               // calls of Predicates in all
	accepted map[string]bool   // nodes and applications
	rejected map[string]string // reasons
	released map[string]si.TerminationType
	states   map[string]*si.UpdateContainerSchedulingStateRequest
	events   []*si.EventRecord
	echoes   []string
	lost     []error
}

var _ api.ResourceManagerCallback = &manager{}

type machine struct {
	labels map[string]string
	taint  string
}

type want struct {
	selector    map[string]string
	toleration  string
	port        int
	volume      string // the node of its volume, which only the call for a placement looks at
	cores       int64
	placeholder bool
	group       string
}

func newManager(t *testing.T) *manager {
	m := &manager{t: t, nodes: map[string]machine{}, pods: map[string]want{}}
	m.changed = sync.NewCond(&m.mu)
	m.forgetAnswers()
	return m
}

func (m *manager) forgetAnswers() {
	m.echoes = nil
	m.running, m.refusals, m.accepted = map[string]string{}, map[string]int{}, map[string]bool{}
	m.rejected, m.released = map[string]string{}, map[string]si.TerminationType{}
	m.states = map[string]*si.UpdateContainerSchedulingStateRequest{}
}

// What the resource manager does.

func (m *manager) options(address string) Options {
	return Options{Address: address, Patience: patience, Lost: func(err error) {
		defer m.change()()
		m.lost = append(m.lost, err)
	}}
}

// connect makes a bridge with the options and registers.
func (m *manager) connect(options Options, config string) {
	m.t.Helper()
	bridge, err := New(options)
	must(m.t, err)
	m.t.Cleanup(bridge.Stop)
	m.bridge = bridge
	must(m.t, m.register(config))
}

func (m *manager) register(config string) error {
	_, err := m.bridge.RegisterResourceManager(&si.RegisterResourceManagerRequest{
		RmID: rmID, Version: "1", PolicyGroup: "queues", Config: config,
		BuildInfo: map[string]string{"instance": m.instance},
	}, m)
	return err
}

func (m *manager) send(message any) {
	m.t.Helper()
	switch request := message.(type) {
	case *si.NodeRequest:
		must(m.t, m.bridge.UpdateNode(request))
	case *si.ApplicationRequest:
		must(m.t, m.bridge.UpdateApplication(request))
	case *si.AllocationRequest:
		must(m.t, m.bridge.UpdateAllocation(request))
	}
}

func (m *manager) node(name string, milli int64, facts machine) {
	m.t.Helper()
	m.create(name, milli, facts, si.NodeInfo_CREATE)
}

func (m *manager) create(name string, milli int64, facts machine, action si.NodeInfo_ActionFromRM) {
	m.t.Helper()
	func() {
		defer m.change()()
		m.nodes[name] = facts
	}()
	m.send(&si.NodeRequest{RmID: rmID, Nodes: []*si.NodeInfo{{
		NodeID: name, Action: action, SchedulableResource: cores(milli),
	}}})
}

func (m *manager) open(name string) {
	m.t.Helper()
	m.send(&si.NodeRequest{RmID: rmID, Nodes: []*si.NodeInfo{{
		NodeID: name, Action: si.NodeInfo_DRAIN_TO_SCHEDULABLE,
	}}})
}

func (m *manager) application(name, queue string, placeholderCores int64) {
	m.t.Helper()
	added := &si.AddApplicationRequest{
		ApplicationID: name, QueueName: queue, PartitionName: "default",
		Ugi: &si.UserGroupInformation{User: "ada"},
	}
	if placeholderCores > 0 {
		added.PlaceholderAsk = cores(placeholderCores)
	}
	m.send(&si.ApplicationRequest{RmID: rmID, New: []*si.AddApplicationRequest{added}})
}

// ask reports pods without a node; existing reports one that runs.
func (m *manager) ask(application string, pods map[string]want) {
	m.t.Helper()
	m.report(application, "", pods)
}

func (m *manager) existing(application, node string, pods map[string]want) {
	m.t.Helper()
	m.report(application, node, pods)
}

func (m *manager) report(application, node string, pods map[string]want) {
	m.t.Helper()
	request := &si.AllocationRequest{RmID: rmID}
	func() {
		defer m.change()()
		for key, pod := range pods {
			m.pods[key] = pod
			if node != "" {
				m.running[key] = node
			}
			request.Allocations = append(request.Allocations, &si.Allocation{
				AllocationKey: key, ApplicationID: application, PartitionName: "default", NodeID: node,
				ResourcePerAlloc: cores(pod.cores), Placeholder: pod.placeholder, TaskGroupName: pod.group,
			})
		}
	}()
	m.send(request)
}

func (m *manager) release(application, key string, termination si.TerminationType) {
	m.t.Helper()
	m.send(&si.AllocationRequest{RmID: rmID, Releases: &si.AllocationReleasesRequest{
		AllocationsToRelease: []*si.AllocationRelease{{
			PartitionName: "default", ApplicationID: application, AllocationKey: key, TerminationType: termination,
		}},
	}})
}

// What the core tells it.

func (m *manager) UpdateAllocation(response *si.AllocationResponse) error {
	defer m.change()()
	for _, placed := range response.GetNew() {
		m.running[placed.GetAllocationKey()] = placed.GetNodeID()
	}
	for _, rejected := range response.GetRejectedAllocations() {
		m.rejected[rejected.GetAllocationKey()] = rejected.GetReason()
	}
	for _, released := range response.GetReleased() {
		key, termination := released.GetAllocationKey(), released.GetTerminationType()
		m.released[key] = termination
		delete(m.running, key)
		if termination != si.TerminationType_STOPPED_BY_RM {
			if err := m.bridge.UpdateAllocation(&si.AllocationRequest{RmID: rmID, Releases: &si.AllocationReleasesRequest{
				AllocationsToRelease: []*si.AllocationRelease{{
					PartitionName: "default", ApplicationID: released.GetApplicationID(),
					AllocationKey: key, TerminationType: termination,
				}},
			}}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *manager) UpdateApplication(response *si.ApplicationResponse) error {
	defer m.change()()
	for _, one := range response.GetAccepted() {
		m.accepted[one.GetApplicationID()] = true
	}
	for _, one := range response.GetRejected() {
		m.rejected[one.GetApplicationID()] = one.GetReason()
	}
	return nil
}

func (m *manager) UpdateNode(response *si.NodeResponse) error {
	defer m.change()()
	for _, one := range response.GetAccepted() {
		m.accepted[one.GetNodeID()] = true
	}
	for _, one := range response.GetRejected() {
		m.rejected[one.GetNodeID()] = one.GetReason()
	}
	return nil
}

func (m *manager) Predicates(args *si.PredicatesArgs) error {
	defer m.change()()
	m.asked++
	pod, node := m.pods[args.GetAllocationKey()], m.nodes[args.GetNodeID()]
	err := suits(pod, node)
	for key, at := range m.running {
		if pod.port != 0 && at == args.GetNodeID() && m.pods[key].port == pod.port {
			err = fmt.Errorf("port %d is in use", pod.port)
		}
	}
	if args.GetAllocate() && pod.volume != "" && pod.volume != args.GetNodeID() {
		err = errors.New("its volume is on " + pod.volume)
	}
	if err != nil && args.GetAllocate() {
		m.refusals[args.GetAllocationKey()]++
	}
	return err
}

func suits(pod want, node machine) error {
	for label, value := range pod.selector {
		if node.labels[label] != value {
			return fmt.Errorf("label %s is not %s", label, value)
		}
	}
	if node.taint != "" && node.taint != pod.toleration {
		return errors.New("taint " + node.taint + " is not tolerated")
	}
	return nil
}

func (m *manager) PreemptionPredicates(*si.PreemptionPredicatesArgs) *si.PreemptionPredicatesResponse {
	m.t.Error("PreemptionPredicates has no message")
	return nil
}

func (m *manager) SendEvent(events []*si.EventRecord) {
	defer m.change()()
	m.events = append(m.events, events...)
}

func (m *manager) UpdateContainerSchedulingState(state *si.UpdateContainerSchedulingStateRequest) {
	defer m.change()()
	m.states[state.GetAllocationKey()] = state
}

// Waiting.

func (m *manager) change() func() {
	m.mu.Lock()
	return func() {
		m.changed.Broadcast()
		m.mu.Unlock()
	}
}

// until waits for a condition on what the core has told.
func (m *manager) until(what string, is func() bool) {
	m.t.Helper()
	late := false
	timer := time.AfterFunc(patience, func() {
		defer m.change()()
		late = true
	})
	defer timer.Stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	for !is() {
		if late || len(m.rejected) > len(m.echoes) {
			m.t.Fatalf("not so: %s\nrunning %v\nrefusals %v\nrejected %v\nreleased %v\nstates %v",
				what, m.running, m.refusals, m.rejected, m.released, m.states)
		}
		m.changed.Wait()
	}
}

// handled waits until the core has handled every ask and allocation so far. The core refuses an ask of an
// application that it does not know, after it has handled all others.
func (m *manager) handled() {
	m.t.Helper()
	key := ""
	func() {
		defer m.change()()
		key = fmt.Sprintf("echo-%d", len(m.echoes))
		m.echoes = append(m.echoes, key)
	}()
	m.ask("unknown", map[string]want{key: {cores: 1}})
	m.until("the core has handled everything", func() bool { return m.rejected[key] != "" })
}

// runs waits until pods run, each on the node that is named; "" is any node.
func (m *manager) runs(where map[string]string) {
	m.t.Helper()
	m.until(fmt.Sprintf("running %v", where), func() bool {
		for key, node := range where {
			if at := m.running[key]; at == "" || node != "" && at != node {
				return false
			}
		}
		return true
	})
}

// seen reads what the core has told.
func (m *manager) seen(read func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	read()
}

func cores(milli int64) *si.Resource {
	return &si.Resource{Resources: map[string]*si.Quantity{"vcore": {Value: milli}}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
