package cluster

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

func encoded(t *testing.T, r *Record) string {
	t.Helper()
	text, err := json.Marshal(r)
	testenv.Must(t, err)
	return string(text)
}

// TestParsePeer: names of daemons may be those of hosts, and names of flows those of the configuration.
func TestParsePeer(t *testing.T) {
	for text, good := range map[string]bool{
		"a/b": true, "storage-1.example/log": true, "7/7": true, "a": false, "/b": false, "a/": false, "a/b/c": false, "A/b": false, "a./b": false, "-a/b": false,
		"a b/c": false, "a/B": false, strings.Repeat("a", 63) + "/b": true, strings.Repeat("a", 64) + "/b": false, "a/" + strings.Repeat("b", 33): false, "": false, "ä/b": false,
	} {
		name, flow, err := ParsePeer(text)
		if (err == nil) != good || good && name+"/"+flow != text {
			t.Errorf("%q: %q, %q, %v", text, name, flow, err)
		}
	}
}

// closed reports whether a channel is closed.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// at returns the text of a record with one flow.
func at(t *testing.T, name string, addresses ...string) []byte {
	t.Helper()
	r := Record{Name: name, Instance: "1", Flows: []Flow{{Name: "log", Addresses: addresses}}}
	text, err := r.Encode()
	testenv.Must(t, err)
	return text
}

// TestPlace: a place knows where a flow is from what the engine finds, also when it does not find it any more, and when
// somebody writes nonsense.
func TestPlace(t *testing.T) {
	n := new(Names)
	if _, err := n.Place("storage"); err == nil {
		t.Fatal("a peer without a flow has a place")
	}
	_, change := n.Wanted()
	p, err := n.Place("storage/log")
	testenv.Must(t, err)
	if names, _ := n.Wanted(); !closed(change) || !slices.Equal(names, []string{"storage"}) {
		t.Fatalf("the engine is to find %q, told %v", names, closed(change))
	}
	_, changed, err := p.Addresses()
	if err == nil || !strings.Contains(err.Error(), "registry does not answer") {
		t.Errorf("without a registry: %v", err)
	}
	n.Update(func(s *State) { s.Up = true })
	if _, _, err = p.Addresses(); err == nil || !strings.Contains(err.Error(), "no daemon is registered as storage") {
		t.Errorf("without a record: %v", err)
	}
	if err := n.Found("storage", at(t, "storage", "10.0.0.2:7471")); err != nil || !closed(changed) {
		t.Fatalf("found: %v, told %v", err, closed(changed))
	}
	want := func(what string, want ...string) <-chan struct{} {
		t.Helper()
		got, changed, err := p.Addresses()
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", what, got, err, want)
		}
		return changed
	}
	changed = want("found", "10.0.0.2:7471")
	if err := n.Found("storage", at(t, "storage", "10.0.0.2:7471")); err != nil || closed(changed) {
		t.Errorf("the same record again: %v, told %v", err, closed(changed))
	}
	n.Gone("storage")
	want("gone", "10.0.0.2:7471")
	if err := n.Found("storage", []byte("{}")); err == nil || closed(changed) {
		t.Errorf("nonsense: %v, told %v", err, closed(changed))
	}
	want("nonsense", "10.0.0.2:7471")
	if _, names, refused := n.Status(); refused[BadVersion] != 1 || len(names) != 1 || names[0].Refused == "" || names[0].Gone.IsZero() {
		t.Errorf("status after nonsense: %+v, %v", names, refused)
	}
	if err := n.Found("storage", at(t, "storage", "10.0.0.3:7471")); err != nil || !closed(changed) {
		t.Errorf("moved: %v, told %v", err, closed(changed))
	}
	want("moved", "10.0.0.3:7471")
	other, err := n.Place("storage/feed")
	testenv.Must(t, err)
	if _, _, err := other.Addresses(); err == nil || !strings.Contains(err.Error(), "has no flow feed") {
		t.Errorf("another flow: %v", err)
	}
	closeAll(t, n, p, other)
}

// TestGroup: a place knows where a member talks with the others, of a witness nothing else, and says so of other flows.
func TestGroup(t *testing.T) {
	n := new(Names)
	r := Record{Name: "storage", Instance: "1", Flows: []Flow{
		{Name: "orders", Addresses: []string{"10.0.0.2:7471"}, Group: []string{"10.0.0.2:7491"}}, {Name: "votes", Addresses: []string{}, Group: []string{"10.0.0.2:7492"}}, {Name: "log", Addresses: []string{"10.0.0.2:7472"}},
	}}
	text, err := r.Encode()
	testenv.Must(t, err)
	for _, c := range []struct{ flow, address, group, lacks string }{
		{"orders", "10.0.0.2:7471", "10.0.0.2:7491", ""}, {"votes", "", "10.0.0.2:7492", "takes no connections: it is a witness"}, {"log", "10.0.0.2:7472", "", "not registered as a member of a group"}, {"none", "", "", "has no flow none"},
	} {
		p, err := n.Place("storage/" + c.flow)
		testenv.Must(t, err)
		testenv.Must(t, n.Found("storage", text))
		at, changed, err := p.Addresses()
		group, _, err2 := p.Group()
		if strings.Join(at, ",") != c.address || strings.Join(group, ",") != c.group || changed == nil {
			t.Errorf("%s is at %q and %q", c.flow, at, group)
		}
		if err = errors.Join(err, err2); (err != nil) != (c.lacks != "") || err != nil && !strings.Contains(err.Error(), c.lacks) {
			t.Errorf("%s: %v, want %q", c.flow, err, c.lacks)
		}
		closeAll(t, n, p)
	}
}

// TestStatePlace: flows and states of the same name have places of their own, found by an engine or configured.
func TestStatePlace(t *testing.T) {
	n := new(Names)
	r := Record{Name: "desk", Instance: "1", Flows: []Flow{{Name: "book", Addresses: []string{"10.0.0.2:7471"}}, {Name: "log", Addresses: []string{"10.0.0.2:7472"}}},
		States: []Flow{{Name: "book", Kind: "objects", Addresses: []string{"10.0.0.2:7490"}}}}
	text, err := r.Encode()
	testenv.Must(t, err)
	open := func(place func(string) (*Place, error), peer string) *Place {
		t.Helper()
		p, err := place(peer)
		testenv.Must(t, err)
		return p
	}
	flow, state, none := open(n.Place, "desk/book"), open(n.StatePlace, "desk/book"), open(n.StatePlace, "desk/log")
	check := func(flowAt, stateAt string) {
		t.Helper()
		if at, _, err := flow.Addresses(); err != nil || len(at) != 1 || at[0] != flowAt {
			t.Errorf("the flow is at %q: %v", at, err)
		}
		if at, _, err := state.Addresses(); err != nil || len(at) != 1 || at[0] != stateAt {
			t.Errorf("the state is at %q: %v", at, err)
		}
		if at, _, err := none.Addresses(); err == nil || !strings.Contains(err.Error(), "daemon desk has no state log") {
			t.Errorf("a state that is none is at %q: %v", at, err)
		}
	}
	testenv.Must(t, n.Found("desk", text))
	check("10.0.0.2:7471", "10.0.0.2:7490")
	n.SetStatic([]Static{{Peer: "desk/book", Address: "10.0.0.3:1"}, {Peer: "desk/book", State: "10.0.0.3:2"}}, true)
	check("10.0.0.3:1", "10.0.0.3:2")
	if _, err := n.StatePlace("desk"); err == nil {
		t.Error("a daemon without a state has a place")
	}
	closeAll(t, n, flow, state, none)
}

// closeAll closes the places, each twice, and checks that nothing is wanted any more.
func closeAll(t *testing.T, n *Names, places ...*Place) {
	t.Helper()
	for _, p := range append(places, places...) {
		testenv.Check(t, p.Close())
	}
	if names, _ := n.Wanted(); len(names) > 0 {
		t.Errorf("%q are still wanted", names)
	}
}

// TestStatic: peers of the configuration have places at once, follow it when it changes, and are not asked of a registry.
func TestStatic(t *testing.T) {
	for _, alone := range []bool{true, false} {
		n := new(Names)
		n.SetStatic([]Static{{Peer: "a/log", Address: "10.0.0.2:1"}, {Peer: "a/log", Address: "10.0.1.2:1"}, {Peer: "b/log", Address: "host:2"}}, alone)
		p, err := n.Place("a/log")
		testenv.Must(t, err)
		got, changed, err := p.Addresses()
		if err != nil || !slices.Equal(got, []string{"10.0.0.2:1", "10.0.1.2:1"}) {
			t.Errorf("%q, %v", got, err)
		}
		if names, _ := n.Wanted(); len(names) > 0 {
			t.Errorf("%q are asked of a registry", names)
		}
		n.SetStatic([]Static{{Peer: "a/log", Address: "10.0.0.2:1"}, {Peer: "a/log", Address: "10.0.1.2:1"}}, alone)
		if closed(changed) {
			t.Error("nothing has changed for a, and its users were told")
		}
		n.SetStatic([]Static{{Peer: "a/log", Address: "10.0.0.9:1"}}, alone)
		if got, _, err := p.Addresses(); err != nil || !closed(changed) || !slices.Equal(got, []string{"10.0.0.9:1"}) {
			t.Errorf("changed: %q, %v, told %v", got, err, closed(changed))
		}
		n.SetStatic(nil, alone)
		if _, _, err := p.Addresses(); err == nil {
			t.Error("a peer that was removed has a place")
		}
		if names, _ := n.Wanted(); !slices.Equal(names, []string{"a"}) {
			t.Errorf("%q are asked of a registry, want the one that was removed", names)
		}
		closeAll(t, n, p)
	}
}
