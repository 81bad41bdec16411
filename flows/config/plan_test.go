package config

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

func parsed(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("plan.yaml", []byte(text), Options{})
	testenv.Must(t, err)
	return c
}

func TestCompare(t *testing.T) {
	running := parsed(t, `
flows:
  - {name: a, from: {interface: eth0, ring: 512}, to: {file: /c/a, segment: {size: 2MiB}}}
  - {name: b, from: {interface: eth1}, to: {rdma: mlx5_0, peers: [{name: x, address: "h:1", flow: x}]}}
  - {name: c, from: {interface: eth2}, to: {file: /c/c}}
`)
	next := parsed(t, `
# Other lines, and another order.
log: {level: debug}
flows:
  - {name: d, from: {interface: eth2}, to: {file: /c/c}}
  - {name: b, from: {interface: eth1}, to: {rdma: mlx5_0, peers: [{name: x, address: "h:1", flow: x}]}}

  - {name: a, from: {interface: eth3, ring: 512, take_over: true}, to: {file: /c/a, segment: {size: 4MiB}}}
`)
	got := Compare(running, next)
	want := Plan{
		Kept: []string{"b"}, Changed: []Change{{"a", []string{"from.interface", "from.take_over", "to.segment.size"}}},
		Added: []string{"d"}, Removed: []string{"c"}, Settings: []string{"log.level"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if same := Compare(next, next); !same.Empty() || len(same.Kept) != 3 {
		t.Errorf("against itself: %+v", same)
	}
	filtered := *next
	filtered.Flows = slices.Clone(next.Flows)
	filtered.Flows[0].From.Filter = "udp"
	if got := Compare(next, &filtered); !slices.Equal(got.Filters, []string{"d"}) || got.Empty() || len(got.Kept) != 2 {
		t.Errorf("another filter: %+v", got)
	}
	filtered.Flows[0].From.Filter, filtered.Flows[0].From.Rules = "", []Rule{{Name: "all", Action: ActionTake, Pos: Pos{Line: 1}}}
	if got := Compare(next, &filtered); !slices.Equal(got.Filters, []string{"d"}) {
		t.Errorf("rules: %+v", got)
	}
	for i := range 2 {
		steered := &[]*Config{next, &filtered}[i].Flows[0].From
		steered.Steer, steered.Queues = SteerPrefer, []int{1}
	}
	if got := Compare(next, &filtered); len(got.Filters) != 0 || len(got.Changed) != 1 {
		t.Errorf("another filter, of which the card has rules: %+v", got)
	}
	for i := range 2 {
		steered := &[]*Config{next, &filtered}[i].Flows[0].From
		steered.Steer, steered.Queues = "", nil
	}
	moved := filtered
	moved.Flows = slices.Clone(filtered.Flows)
	moved.Flows[0].From.Rules = []Rule{{Name: "all", Action: ActionTake, Pos: Pos{Line: 2}}}
	if got := Compare(&filtered, &moved); !got.Empty() {
		t.Errorf("rules on other lines: %+v", got)
	}
	moved.Flows[0].From.Object = Object{"/a.o", "a", "other bytes"}
	filtered.Flows[0].From.Object = Object{"/a.o", "a", "bytes"}
	if got := Compare(&filtered, &moved); !slices.Equal(got.Filters, []string{"d"}) {
		t.Errorf("an object with other bytes: %+v", got)
	}
	next.Flows[1].To.Peers = slices.Clone(next.Flows[1].To.Peers)
	next.Flows[1].To.Peers[0].Policy = PolicyDropOldest
	if got := Compare(running, next).Changed; len(got) != 2 || !slices.Equal(got[0].Keys, []string{"to.peers"}) {
		t.Errorf("another policy of a peer: %+v", got)
	}
}

// TestCompareSubsystems: a flow to NVMe hosts continues when namespaces are added or removed or
// other hosts may connect, and restarts when a namespace changes.
func TestCompareSubsystems(t *testing.T) {
	with := func(more string) *Config {
		return parsed(t, `flows: [{name: v, from: {file: /v}, to: {rdma: mlx5_0, listen: "h:4420", subsystem: nqn.a, keys: /k`+more+`}}]`)
	}
	running := with(`, namespaces: [{id: 2, file: /two}, {id: 3, file: /three}]`)
	for more, goesOn := range map[string]bool{
		`, namespaces: [{id: 2, file: /two}, {id: 4, file: /four}], hosts: [nqn.h]`: true,
		``:                                     true,
		`, namespaces: [{id: 2, file: /four}]`: true,
		`, ana: inaccessible, namespaces: [{id: 2, file: /two}, {id: 3, file: /three, ana: non-optimized}]`:       true,
		`, namespaces: [{id: 2, file: /two}, {id: 3, file: /three}], controllers: 1-1000`:                         false,
		`, namespaces: [{id: 2, file: /two, read_only: true}]`:                                                    false,
		`, namespaces: [{id: 5, file: /two}]`:                                                                     false,
		`, namespaces: [{id: 2, file: /two}], window: 64`:                                                         false,
		`, subsystems: [{subsystem: nqn.b, namespaces: [{id: 1, file: /b}], hosts: [nqn.h]}, {subsystem: nqn.c}]`: true,
		`, subsystems: [{subsystem: nqn.b, namespaces: [{id: 2, file: /two}]}]`:                                   false,
	} {
		p := Compare(running, with(more))
		if slices.Equal(p.Subsystems, []string{"v"}) != goesOn || (len(p.Changed) == 1) == goesOn || p.Empty() {
			t.Errorf("with %q: %+v", more, p)
		}
	}
	more := `, subsystems: [{subsystem: nqn.b, namespaces: [{id: 1, file: /b}]}]`
	if p := Compare(with(more), with("\n\n"+strings.ReplaceAll(more, ", ", ",\n "))); !p.Empty() {
		t.Errorf("a subsystem on other lines: %+v", p)
	}
	if p := Compare(running, parsed(t, "\n\n"+`flows: [{name: v, from: {file: /v}, to: {rdma: mlx5_0, listen: "h:4420", subsystem: nqn.a, keys: /k, namespaces: [{id: 2, file: /two}, {id: 3, file: /three}]}}]`)); !p.Empty() {
		t.Errorf("on other lines: %+v", p)
	}
}

// TestPlanKnowsKeys: the keys in a plan are the keys of the file, for every setting.
func TestPlanKnowsKeys(t *testing.T) {
	text, err := os.ReadFile("testdata/full.yaml")
	testenv.Must(t, err)
	c := parsed(t, string(text))
	r := newReport(newSource("", string(text)))
	d := newDecoder(r)
	d.config(compose(r, string(text)), Default())
	for _, path := range differences("", reflect.ValueOf(*c), reflect.ValueOf(Config{})) {
		if _, ok := r.places[path]; !ok {
			t.Errorf("there is no setting %s in the file that has all", path)
		}
	}
	all := make(map[string]bool)
	for i := range c.Flows {
		f := &c.Flows[i]
		for _, path := range flowKeys(f, &Flow{}) {
			all[path] = true
		}
	}
	for i := range flowSettings {
		if k := &flowSettings[i]; k.field != nil && !all[k.path] {
			t.Errorf("flows that differ in %s do not differ", k.path)
		}
	}
}

// TestRunning: a change to a setting that cannot change while a daemon runs is a mistake at the
// place of that setting.
func TestRunning(t *testing.T) {
	const flows = "\nflows: [{name: md, from: {interface: eth0}, to: {file: /c/md}}]\n"
	running := parsed(t, "region: {size: 64MiB, extents: 8}\nmetrics: {listen: \":9300\"}\nworkers: [{name: main, cpu: 1}]"+flows)
	_, err := Parse("plan.yaml", []byte("region: {size: 128MiB, extents: 8, node: 0}\nlog: {level: warn}\nworkers: [{name: main}]"+flows+"tls: {certificate: /a, key: /b, authority: /c}\n"),
		Options{Running: running})
	if err == nil {
		t.Fatal("the region, the workers and the secrets of a running daemon change")
	}
	for _, want := range []string{
		"plan.yaml:1:16: region.size: cannot change while the daemon runs, with 64MiB\n",
		"plan.yaml:1:42: region.node: cannot change while the daemon runs, without it\n",
		"plan.yaml:3:10: workers: cannot change while the daemon runs\n",
		"plan.yaml:1:1: metrics.listen: cannot change while the daemon runs, with :9300\n",
		"plan.yaml:5:20: tls.certificate: cannot change while the daemon runs, without it\n",
		"^ restart it for this",
	} {
		if !strings.Contains(err.Error()+"\n", want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "log.level") {
		t.Errorf("log.level can change, but: %v", err)
	}
}
