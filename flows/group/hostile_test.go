package group

import (
	"errors"
	"log/slog"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/unifiedd/unifiedd/flows/group/election"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// follower returns member 1 of a group of three, after it has heard the leader 2 of epoch 5.
func follower(t testing.TB) *Member {
	m, err := NewMember(MemberConfig{Self: 1, State: election.First([]uint32{1, 2, 3}), Log: func() Log { return Log{} }, Serial: 1 << 32, Logger: slog.New(slog.DiscardHandler)})
	testenv.Must(t, err)
	app := &election.Message{Type: raftpb.MsgApp.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(5)), LogTerm: new(uint64(1)), Index: new(uint64(1)), Commit: new(uint64(2)),
		Entries: []*raftpb.Entry{{Term: new(uint64(5)), Index: new(uint64(2))}}}
	testenv.Must(t, m.Step(Message{From: 2, To: 1, Kind: KindElection, Election: app}))
	handle(m)
	return m
}

// handle handles everything that a member asks for, and returns its messages.
func handle(m *Member) (sent []Message) {
	for m.Err() == nil {
		r, ok := m.Ready()
		if !ok {
			break
		}
		sent = append(sent, r.Messages...)
		m.Advance(r)
	}
	return sent
}

// TestForged: messages of other epochs, of members that do not lead, and answers to reports that were
// not asked for change nothing.
func TestForged(t *testing.T) {
	for _, c := range []struct {
		name string
		one  Message
	}{
		{"a seal of an earlier epoch", Message{From: 2, Kind: KindSeal, Epoch: 4}},
		{"a seal of a later epoch", Message{From: 2, Kind: KindSeal, Epoch: 6}},
		{"a seal of a member that does not lead", Message{From: 3, Kind: KindSeal, Epoch: 5}},
		{"an answer to no report", Message{From: 2, Kind: KindFollow, Epoch: 5, Serial: 7}},
		{"a report to a follower", Message{From: 3, Kind: KindReport, Epoch: 5, Log: Log{End: Place{9, 9}, Table: Table{{9, 1}}}}},
	} {
		m := follower(t)
		if err := m.Step(c.one); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if r, ok := m.Ready(); ok {
			t.Errorf("%s: it asks for %+v", c.name, r)
		}
	}
	m := follower(t)
	testenv.Must(t, m.Step(Message{From: 2, To: 1, Kind: KindSeal, Epoch: 5}))
	sent := handle(m)
	if len(sent) != 1 || sent[0].Kind != KindReport || sent[0].To != 2 {
		t.Fatalf("a seal of the leader is answered with %+v", sent)
	}
	if err := m.Step(Message{From: 2, Kind: KindFollow, Epoch: 5, Serial: sent[0].Serial, After: 3}); err == nil {
		t.Error("records behind the end of the log are taken")
	}
}

// TestContradiction: a leader's message that contradicts what is decided, or that changes the members in a
// way that cannot be, stops the member with an error, not the process.
func TestContradiction(t *testing.T) {
	removal, err := proto.Marshal(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{
		{Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(uint64(1))}, {Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(uint64(2))}, {Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: new(uint64(3))},
	}})
	testenv.Must(t, err)
	change := func(data []byte) *election.Message {
		return &election.Message{
			Type: raftpb.MsgApp.Enum(), LogTerm: new(uint64(5)), Index: new(uint64(2)), Commit: new(uint64(3)),
			Entries: []*raftpb.Entry{{Term: new(uint64(5)), Index: new(uint64(3)), Type: raftpb.EntryConfChangeV2.Enum(), Data: data}},
		}
	}
	for name, one := range map[string]*election.Message{
		"more is committed than there is": {Type: raftpb.MsgHeartbeat.Enum(), Commit: new(uint64(100))},
		"a change that cannot be read":    change([]byte{0xff}),
		"nobody is left":                  change(removal),
	} {
		m := follower(t)
		one.From, one.To, one.Term = new(uint64(2)), new(uint64(1)), new(uint64(5))
		_ = m.Step(Message{From: 2, To: 1, Kind: KindElection, Election: one}) // Err has it
		handle(m)
		if !errors.Is(m.Err(), election.ErrBroken) {
			t.Errorf("%s: %v", name, m.Err())
		}
	}
}

// TestLeaderStays: a leader that hears enough followers drops pre-votes, however often one is asked for.
func TestLeaderStays(t *testing.T) {
	m := follower(t)
	m.phase, m.heard = Leading, false
	vote := Message{From: 3, To: 1, Kind: KindElection, Election: &election.Message{Type: raftpb.MsgPreVote.Enum(), From: new(uint64(3)), To: new(uint64(1)), Term: new(uint64(6)), LogTerm: new(uint64(5)), Index: new(uint64(2))}, End: Place{5, 9}}
	m.Followed(true)
	for range 2 * maxPassed {
		if m.allows(vote) {
			t.Fatal("it lets another member try")
		}
	}
	m.Followed(false)
	if !m.allows(vote) {
		t.Error("a leader that hears nobody lets nobody try")
	}
}

// TestCommittedStays: a leader's answer that would cut committed records stops the member.
func TestCommittedStays(t *testing.T) {
	m := follower(t)
	m.config.Log = func() Log { return Log{End: Place{5, 9}, Table: Table{{5, 1}}, Committed: 6} }
	for after, want := range map[uint64]error{5: errDiverged, 6: nil} {
		m.err = nil
		testenv.Must(t, m.Step(Message{From: 2, To: 1, Kind: KindSeal, Epoch: 5}))
		sent := handle(m)
		err := m.Step(Message{From: 2, Kind: KindFollow, Epoch: 5, Serial: sent[len(sent)-1].Serial, After: after})
		if !errors.Is(err, want) || !errors.Is(m.Err(), want) {
			t.Errorf("records after %d of 6 that are committed are cut: %v", after, err)
		}
	}
}

// FuzzMember: a member may get any message. It never panics, and asks for nothing that removes
// committed records.
func FuzzMember(f *testing.F) {
	vote, err := proto.Marshal(&election.Message{Type: raftpb.MsgVote.Enum(), Term: new(uint64(7))})
	testenv.Must(f, err)
	f.Add(uint8(KindElection), uint64(0), uint64(0), uint64(0), vote)
	f.Add(uint8(KindSeal), uint64(5), uint64(0), uint64(0), []byte{})
	f.Add(uint8(KindFollow), uint64(5), uint64(1<<32), uint64(0), []byte{})
	f.Fuzz(func(t *testing.T, kind uint8, epoch, serial, after uint64, raw []byte) {
		m := follower(t)
		const committed = 5
		m.config.Log = func() Log { return Log{End: Place{5, 9}, Table: Table{{5, 1}}, Committed: committed} }
		one := Message{From: 2, To: 1, Kind: Kind(kind), Epoch: epoch, Serial: serial, After: after, Log: Log{End: Place{epoch, after}, Table: Table{{epoch, serial}}}}
		if e := (&election.Message{}); proto.Unmarshal(raw, e) == nil {
			e.From, e.To = new(uint64(2)), new(uint64(1))
			one.Election = e
		}
		_ = m.Step(Message{From: 2, Kind: KindSeal, Epoch: 5})
		handle(m)
		if m.Step(one) != nil {
			return
		}
		for m.Err() == nil {
			r, ok := m.Ready()
			if !ok {
				break
			}
			if r.Follow != nil && r.Follow.After < committed || r.Fetch != nil && r.Fetch.After < committed {
				t.Fatalf("committed records are cut: %+v, %+v", r.Follow, r.Fetch)
			}
			m.Advance(r)
		}
	})
}
