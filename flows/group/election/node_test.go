package election

import (
	"errors"
	"log/slog"
	"slices"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// network delivers everything between some nodes, in order.
type network struct {
	*testing.T
	nodes map[uint32]*Node
	saved map[uint32][]byte
}

func newNetwork(t *testing.T, voters ...uint32) *network {
	n := &network{t, map[uint32]*Node{}, map[uint32][]byte{}}
	for _, id := range voters {
		n.add(id, First(voters))
	}
	return n
}

func (n *network) add(id uint32, s State) {
	node, err := New(id, s, slog.New(slog.DiscardHandler))
	testenv.Must(n, err)
	n.nodes[id] = node
	n.save(id)
}

func (n *network) save(id uint32) {
	b, err := n.nodes[id].State().Append(nil)
	testenv.Must(n, err)
	n.saved[id] = b
}

// restart makes a node again from what it saved last.
func (n *network) restart(id uint32) {
	s, err := ParseState(n.saved[id])
	testenv.Must(n, err)
	n.add(id, s)
}

// run handles everything that is to be done.
func (n *network) run() {
	for more := true; more; {
		more = false
		for id := uint32(1); id < 10; id++ {
			node := n.nodes[id]
			if node == nil {
				continue
			}
			r, ok := node.Ready()
			if !ok {
				continue
			}
			more = true
			if r.Save {
				n.save(id)
			}
			testenv.Check(n, node.Advance())
			for _, m := range r.Messages {
				if to := n.nodes[uint32(m.GetTo())]; to != nil {
					if err := to.Step(m); err != nil {
						n.Errorf("member %d: %v", m.GetTo(), err)
					}
				}
			}
		}
	}
}

func (n *network) campaign(id uint32) {
	testenv.Check(n, n.nodes[id].Campaign())
	n.run()
}

// TestElect: a member that asks for votes leads a new epoch, on its own or because the leader hands
// over, and keeps its vote when it restarts.
func TestElect(t *testing.T) {
	n := newNetwork(t, 1, 2, 3)
	n.campaign(2)
	if first := n.nodes[2]; !first.Leads() || first.Epoch() != 2 || n.nodes[1].Leader() != 2 || n.nodes[3].Epoch() != 2 {
		t.Errorf("member 2 leads: %v; epoch %d, and member 1 follows %d", first.Leads(), first.Epoch(), n.nodes[1].Leader())
	}
	n.nodes[2].Transfer(3)
	n.run()
	if !n.nodes[3].Leads() || n.nodes[3].Epoch() != 3 {
		t.Errorf("after a transfer member 3 leads: %v, epoch %d", n.nodes[3].Leads(), n.nodes[3].Epoch())
	}
	n.restart(1)
	if n.nodes[1].Epoch() != 3 {
		t.Errorf("a member that restarted in epoch 3 begins with epoch %d", n.nodes[1].Epoch())
	}
}

// TestMembers: a member joins as a learner, learns the members, and takes the place of another.
// While the change is under way, old and new voters count.
func TestMembers(t *testing.T) {
	n := newNetwork(t, 1, 2, 3)
	n.campaign(1)
	lead := n.nodes[1]
	n.add(4, Joining())
	n.restart(4)
	step := func(what error) Members {
		if what != nil {
			t.Fatal(what)
		}
		n.run()
		lead.Tick()
		n.run()
		if m := n.nodes[4].Members(); !slices.Equal(m.All(), lead.Members().All()) {
			t.Fatalf("the member that joins knows %+v, and the leader %+v", m, lead.Members())
		}
		return lead.Members()
	}
	step(lead.Begin(Change{Learners: []uint32{4}}))
	if m := step(lead.End()); !slices.Equal(m.Learners, []uint32{4}) || len(m.Outgoing) > 0 {
		t.Errorf("after it was added: %+v", m)
	}
	if m := step(lead.Begin(Change{Voters: []uint32{4}, Remove: []uint32{3}})); !slices.Equal(m.Voters, []uint32{1, 2, 4}) || !slices.Equal(m.Outgoing, []uint32{1, 2, 3}) {
		t.Errorf("during the replacement: %+v", m)
	}
	if m := step(lead.End()); !slices.Equal(m.Voters, []uint32{1, 2, 4}) || len(m.Outgoing) > 0 {
		t.Errorf("after it: %+v", m)
	}
	n.restart(4)
	if m := n.nodes[4].Members(); !slices.Contains(m.All(), 4) {
		t.Errorf("after a restart the new member knows %+v", m)
	}
	n.campaign(4)
	if !n.nodes[4].Leads() {
		t.Error("the new member cannot lead")
	}
}

// TestSecondChange: a change of the members that comes too soon is refused. Raft would ignore it without a
// word.
func TestSecondChange(t *testing.T) {
	n := newNetwork(t, 1, 2, 3)
	n.campaign(1)
	leader := n.nodes[1]
	for leader.Epoch() == firstEpoch || !leader.Leads() {
		n.run()
	}
	n.run()
	testenv.Must(t, leader.Begin(Change{Learners: []uint32{4}}))
	if err := leader.Begin(Change{Remove: []uint32{3}}); !errors.Is(err, ErrChanging) || !leader.Changing() {
		t.Errorf("a second change at once: %v", err)
	}
	n.run()
	if err := leader.End(); err != nil || leader.Members().All()[3] != 4 {
		t.Errorf("end of the change: %v, %+v", err, leader.Members())
	}
	n.run()
	if leader.Changing() {
		t.Error("the change does not end")
	}
	if err := leader.Begin(Change{Remove: []uint32{3}}); err != nil {
		t.Errorf("a change after the first: %v", err)
	}
}

// TestApply: what a change makes of the members.
func TestApply(t *testing.T) {
	c := Change{Voters: []uint32{4}, Learners: []uint32{1}, Remove: []uint32{2}}
	got := c.Apply(Members{Voters: []uint32{1, 2, 3}, Learners: []uint32{4}})
	if !slices.Equal(got.Voters, []uint32{3, 4}) || !slices.Equal(got.Learners, []uint32{1}) || len(got.Outgoing) > 0 {
		t.Errorf("%+v", got)
	}
}

// TestLostSnapshot: a member that was away gets a snapshot, again if the first one is lost.
func TestLostSnapshot(t *testing.T) {
	n := newNetwork(t, 1, 2, 3)
	away := n.nodes[3]
	delete(n.nodes, 3)
	for i := range uint32(40) {
		n.campaign(1 + i%2)
		n.nodes[1+i%2].Tick()
		n.run()
	}
	lead := n.nodes[2]
	lead.Tick()
	for lost := false; !lost; lead.Tick() { // member 3 is back, and the snapshot is lost
		for r, ok := lead.Ready(); ok; r, ok = lead.Ready() {
			testenv.Must(t, lead.Advance())
			for _, m := range r.Messages {
				switch {
				case m.GetTo() == 3 && m.GetType() == raftpb.MsgSnap:
					lost = true
				case m.GetTo() == 3:
					testenv.Must(t, away.Step(m))
				}
			}
			for r, ok := away.Ready(); ok; r, ok = away.Ready() {
				testenv.Must(t, away.Advance())
				for _, m := range r.Messages {
					testenv.Must(t, lead.Step(m))
				}
			}
		}
	}
	n.nodes[3] = away
	for range 10 {
		lead.Tick()
		n.run()
	}
	last := func(of *Node) uint64 { at, _ := of.storage.LastIndex(); return at }
	if last(away) != last(lead) {
		t.Errorf("the member that was away has entry %d, and the leader %d", last(away), last(lead))
	}
}

// TestStateStaysSmall: the state of a group that has had many elections is as small as that of a new
// one.
func TestStateStaysSmall(t *testing.T) {
	n := newNetwork(t, 1, 2, 3)
	for i := range uint32(300) {
		n.campaign(1 + i%3)
		n.nodes[1+i%3].Tick()
		n.run()
	}
	if len(n.saved[1]) > 2000 {
		t.Errorf("after 300 elections the state has %d bytes", len(n.saved[1]))
	}
	n.restart(2)
	n.campaign(2)
	if !n.nodes[2].Leads() || n.nodes[2].Epoch() != 302 {
		t.Errorf("member 2 leads %v in epoch %d, want 302", n.nodes[2].Leads(), n.nodes[2].Epoch())
	}
}

// FuzzState: a state on a disk may be anything. What ParseState accepts, New must take.
func FuzzState(f *testing.F) {
	for _, s := range []State{First([]uint32{1, 2, 3}), Joining()} {
		b, err := s.Append(nil)
		testenv.Must(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseState(b)
		if err != nil {
			return
		}
		n, err := New(1, s, slog.New(slog.DiscardHandler))
		if err != nil {
			return
		}
		if _, ok := n.Ready(); ok {
			testenv.Must(t, n.Advance())
		}
		if _, err := n.State().Append(nil); err != nil {
			t.Error(err)
		}
	})
}
