package bridge

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
)

// refusalsMax allows one refusal before the bridge looks at the nodes, and those refusals that cross its
// message to the core.
const refusalsMax = 10

func TestPodsEndOnNodesThatSuitThem(t *testing.T) {
	m := newManager(t)
	m.connect(m.options(startCore(t).address), queues)
	for _, name := range []string{"n0", "n1", "n2", "n3"} {
		facts := machine{labels: map[string]string{"name": name}}
		if name == "n3" {
			facts.taint = "gpu"
		}
		m.node(name, 10_000, facts)
	}
	m.application("app", "root.a", 0)
	pods, where := map[string]want{}, map[string]string{}
	for i := range 4 {
		for _, name := range []string{"n0", "n1", "n2"} {
			key := fmt.Sprintf("%s-%d", name, i)
			pods[key] = want{cores: 1000, selector: map[string]string{"name": name}}
			where[key] = name
		}
		key := fmt.Sprintf("n3-%d", i)
		pods[key] = want{cores: 1000, selector: map[string]string{"name": "n3"}, toleration: "gpu"}
		where[key] = "n3"
	}
	m.ask("app", pods)
	m.runs(where)
	m.seen(func() {
		for key, count := range m.refusals {
			if count > refusalsMax {
				t.Errorf("%s was refused %d times", key, count)
			}
		}
	})
}

// There are more nodes than the core avoids for one ask. Without the bridge's constraints the asks would be placed
// and refused without end. What only the call for a placement finds out costs one refusal a node.
func TestAnAskThatNoNodeSuitsIsRefusedABoundedNumberOfTimes(t *testing.T) {
	m := newManager(t)
	m.connect(m.options(startCore(t).address), queues)
	for i := range 40 {
		m.node(fmt.Sprintf("n%d", i), 10_000, machine{})
	}
	m.application("app", "root.a", 0)
	m.ask("app", map[string]want{
		"selector": {cores: 1000, selector: map[string]string{"disk": "ssd"}},
		"volume":   {cores: 1000, volume: "better"},
	})
	m.until("both wait, and the manager knows", func() bool {
		return m.states["selector"] != nil && m.states["volume"] != nil
	})
	for i := range 100 { // each of them lets the core look at the waiting asks again
		key := fmt.Sprintf("pod-%d", i)
		m.ask("app", map[string]want{key: {cores: 100}})
		m.runs(map[string]string{key: ""})
		m.release("app", key, si.TerminationType_STOPPED_BY_RM)
	}
	m.seen(func() {
		if m.refusals["selector"] > refusalsMax || m.refusals["volume"] > 40+refusalsMax {
			t.Errorf("refusals: %v", m.refusals)
		}
		for _, event := range m.events {
			if m.refusals[event.GetObjectID()] == 0 || event.GetReferenceID() != "app" {
				t.Errorf("not the event of a refusal: %v", event)
			}
		}
		if len(m.events) != m.refusals["selector"]+m.refusals["volume"] {
			t.Errorf("%d events of %v", len(m.events), m.refusals)
		}
	})

	m.node("better", 10_000, machine{labels: map[string]string{"disk": "ssd"}})
	m.runs(map[string]string{"selector": "better", "volume": "better"})
}

// The interface reports no change of a label, so the nodes are looked at again after a while.
func TestALabelThatChangesIsFoundLater(t *testing.T) {
	m := newManager(t)
	options := m.options(startCore(t).address)
	options.Recheck = 200_000_000 // 0.2 s
	m.connect(options, queues)
	m.node("n1", 10_000, machine{})
	m.application("app", "root.a", 0)
	m.ask("app", map[string]want{"picky": {cores: 1000, selector: map[string]string{"disk": "ssd"}}})
	m.until("refused", func() bool { return m.refusals["picky"] > 0 })
	func() {
		defer m.change()()
		m.nodes["n1"] = machine{labels: map[string]string{"disk": "ssd"}}
	}()
	m.runs(map[string]string{"picky": "n1"})
}

// No node changes when the port is free again. So only the end of a pod lets the bridge look again.
func TestAPodWaitsForThePortOfAnother(t *testing.T) {
	m := newManager(t)
	m.connect(m.options(startCore(t).address), queues)
	m.node("n1", 10_000, machine{})
	m.application("app", "root.a", 0)
	m.ask("app", map[string]want{"first": {cores: 1000, port: 80}})
	m.runs(map[string]string{"first": "n1"})
	m.ask("app", map[string]want{"second": {cores: 1000, port: 80}})
	m.until("the second waits", func() bool { return m.states["second"] != nil })
	began := time.Now()
	m.release("app", "first", si.TerminationType_STOPPED_BY_RM)
	m.runs(map[string]string{"second": "n1"})
	if took := time.Since(began); took > patience/2 {
		t.Errorf("it waited for %s", took)
	}
}

// Victims are evicted only on nodes that suit the ask, although the published messages have no field for
// these nodes.
func TestPreemptionReachesTheManagerAndSparesOtherNodes(t *testing.T) {
	config := `
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: a
            resources: {guaranteed: {vcore: 4000}}
            properties: {preemption.delay: 2s}
          - name: b
`
	m := newManager(t)
	m.connect(m.options(startCore(t).address), config)
	m.node("n0", 4000, machine{})
	m.node("n1", 4000, machine{labels: map[string]string{"disk": "ssd"}})
	m.application("batch", "root.b", 0)
	m.application("shop", "root.a", 0)
	m.ask("batch", map[string]want{
		"b0": {cores: 2000}, "b1": {cores: 2000}, "b2": {cores: 2000}, "b3": {cores: 2000},
	})
	m.runs(map[string]string{"b0": "", "b1": "", "b2": "", "b3": ""})
	m.ask("shop", map[string]want{"web": {cores: 2000, selector: map[string]string{"disk": "ssd"}}})
	m.runs(map[string]string{"web": "n1"})
	m.seen(func() {
		if len(m.released) != 1 {
			t.Errorf("not one victim: %v", m.released)
		}
		for key, termination := range m.released {
			if termination != si.TerminationType_PREEMPTED_BY_SCHEDULER {
				t.Errorf("%s: %s", key, termination)
			}
		}
		if m.refusals["web"] > 0 {
			t.Errorf("a pod was evicted for a placement that was refused: %v", m.refusals)
		}
	})
	m.until("an event on the victim", func() bool { return len(m.events) > 0 })
}

func TestAConfigurationThatIsNotAppliedIsAnError(t *testing.T) {
	m := newManager(t)
	m.connect(m.options(startCore(t).address), queues)
	bad := strings.Replace(queues, "- name: b", "- name: b\n            resources: {max: {vcore: many}}", 1)
	err := m.bridge.UpdateConfiguration(&si.UpdateConfigurationRequest{RmID: rmID, Config: bad})
	if err == nil || !strings.Contains(err.Error(), "line 10") || !strings.Contains(err.Error(), "max.vcore") {
		t.Errorf("the error does not say what is wrong where: %v", err)
	}
	good := strings.Replace(queues, "- name: b", "- name: c", 1)
	must(t, m.bridge.UpdateConfiguration(&si.UpdateConfigurationRequest{RmID: rmID, Config: good}))
	m.node("n1", 1000, machine{})
	m.application("app", "root.c", 0)
	m.until("the new queue is there", func() bool { return m.accepted["app"] })

	if err := m.register(bad); err == nil || !strings.Contains(err.Error(), "max.vcore") {
		t.Errorf("a registration with a bad configuration does not say why: %v", err)
	}
}

// Placeholders of an application are placed together: the core knows their sum from the published placeholderAsk.
func TestPlaceholdersArePlacedTogether(t *testing.T) {
	m := newManager(t)
	m.connect(m.options(startCore(t).address), queues)
	m.node("n1", 2500, machine{})
	m.application("gang", "root.a", 3000)
	m.ask("gang", map[string]want{
		"h0": {cores: 1000, placeholder: true, group: "g"},
		"h1": {cores: 1000, placeholder: true, group: "g"},
		"h2": {cores: 1000, placeholder: true, group: "g"},
	})
	m.until("they wait", func() bool { return len(m.states) == 3 })
	m.seen(func() {
		if len(m.running) > 0 {
			t.Errorf("two of three were placed: %v", m.running)
		}
	})
	m.node("n2", 1000, machine{})
	m.runs(map[string]string{"h0": "", "h1": "", "h2": ""})
	m.ask("gang", map[string]want{"real": {cores: 1000, group: "g"}})
	m.runs(map[string]string{"real": ""})
	m.seen(func() {
		if len(m.released) != 1 {
			t.Errorf("not one placeholder was replaced: %v", m.released)
		}
		for key, termination := range m.released {
			if termination != si.TerminationType_PLACEHOLDER_REPLACED {
				t.Errorf("%s: %s", key, termination)
			}
		}
	})
}

// A new bridge reports what runs and opens the node behind it. The core needs a while to read pods of many
// sizes. If the node opened meanwhile, an ask that came first would get capacity that is in use.
func TestARestartedManagerFindsItsPodsCounted(t *testing.T) {
	address := startCore(t).address
	m := newManager(t)
	m.connect(m.options(address), queues)
	pods := map[string]want{}
	room := int64(0)
	for i := range int64(3000) {
		pods[fmt.Sprintf("pod-%d", i)] = want{cores: i + 1}
		room += i + 1
	}
	m.node("n1", room, machine{})
	m.application("app", "root.a", 0)
	m.ask("app", pods)
	m.until("all run", func() bool { return len(m.running) == len(pods) })
	m.bridge.Stop()
	if err := m.bridge.UpdateNode(&si.NodeRequest{RmID: rmID}); !errors.Is(err, ErrNoSession) {
		t.Errorf("a stopped bridge takes reports: %v", err)
	}

	m.seen(m.forgetAnswers)
	m.connect(m.options(address), queues)
	m.create("n1", room, machine{}, si.NodeInfo_CREATE_DRAIN)
	m.application("app", "root.a", 0)
	m.ask("app", map[string]want{"late": {cores: 1}})
	m.existing("app", "n1", pods)
	m.open("n1")
	m.handled()
	m.seen(func() {
		if node := m.running["late"]; node != "" {
			t.Errorf("placed on full node %s", node)
		}
	})
	m.release("app", "pod-0", si.TerminationType_STOPPED_BY_RM)
	m.runs(map[string]string{"late": "n1"})
}

func TestALostCoreIsReportedAndTheManagerRegistersAgain(t *testing.T) {
	address := freePort(t)
	first := startCoreAt(t, address)
	m := newManager(t)
	m.connect(m.options(address), queues)
	m.node("n1", 1000, machine{})
	m.application("app", "root.a", 0)
	m.ask("app", map[string]want{"one": {cores: 1000}})
	m.runs(map[string]string{"one": "n1"})

	first.end(syscall.SIGKILL)
	m.until("the loss is reported", func() bool { return len(m.lost) > 0 })
	if err := m.bridge.UpdateNode(&si.NodeRequest{RmID: rmID}); !errors.Is(err, ErrNoSession) {
		t.Errorf("reports are taken without a core: %v", err)
	}

	startCoreAt(t, address)
	m.seen(m.forgetAnswers)
	must(t, m.register(queues))
	m.create("n1", 1000, machine{}, si.NodeInfo_CREATE_DRAIN)
	m.application("app", "root.a", 0)
	m.existing("app", "n1", map[string]want{"one": {cores: 1000}})
	m.open("n1")
	m.ask("app", map[string]want{"two": {cores: 1000}})
	m.handled()
	m.seen(func() {
		if node := m.running["two"]; node != "" {
			t.Errorf("placed on full node %s", node)
		}
	})
	m.release("app", "one", si.TerminationType_STOPPED_BY_RM)
	m.runs(map[string]string{"two": "n1"})
	m.seen(func() {
		if len(m.lost) != 1 {
			t.Errorf("one loss was reported as %v", m.lost)
		}
	})
}

// runOne reports a node, an application and a pod, and waits until the pod runs.
func (m *manager) runOne() {
	m.t.Helper()
	m.node("n1", 1000, machine{})
	m.application("app", "root.a", 0)
	m.ask("app", map[string]want{"one": {cores: 1000}})
	m.runs(map[string]string{"one": "n1"})
}

func TestTheOlderOfTwoProcessesEndsAndCannotReturn(t *testing.T) {
	address := startCore(t).address
	older, younger := newManager(t), newManager(t)
	older.instance, younger.instance = "pod-1", "pod-2"
	older.connect(older.options(address), queues)
	older.runOne()
	younger.connect(younger.options(address), queues)
	younger.runOne()
	older.until("it is told", func() bool { return len(older.lost) == 1 })
	if err := older.register(queues); err == nil || !strings.Contains(err.Error(), "Aborted") {
		t.Errorf("the older process registers again: %v", err)
	}
	younger.handled()
}
