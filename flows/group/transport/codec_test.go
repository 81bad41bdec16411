package transport

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/flows/group"
	"github.com/unifiedd/unifiedd/flows/group/election"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

func drawMessage(t *rapid.T) group.Message {
	number := rapid.Uint64()
	m := group.Message{Kind: group.Kind(rapid.IntRange(int(group.KindElection), int(group.KindReply)).Draw(t, "kind")), Epoch: number.Draw(t, "epoch")}
	place := func() group.Place {
		return group.Place{Epoch: number.Draw(t, "epoch"), Position: number.Draw(t, "position")}
	}
	switch m.Kind {
	case group.KindElection:
		m.End = place()
		term, index := rapid.Uint64Min(1).Draw(t, "term"), rapid.Uint64Max(1<<60).Draw(t, "index")
		m.Election = &election.Message{Type: raftpb.MsgApp.Enum(), Term: &term, Index: &index,
			Entries: []*raftpb.Entry{{Index: new(index + 1), Term: &term, Data: rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "data")}}}
	case group.KindReport:
		m.Serial, m.Log = number.Draw(t, "serial"), group.Log{End: place(), Committed: number.Draw(t, "committed"), Recovering: rapid.Bool().Draw(t, "recovering")}
		for range rapid.IntRange(0, 64).Draw(t, "spans") {
			m.Log.Table = append(m.Log.Table, group.Span{Epoch: number.Draw(t, "span"), First: number.Draw(t, "first")})
		}
	case group.KindFollow:
		m.Serial, m.After, m.Until = number.Draw(t, "serial"), number.Draw(t, "after"), number.Draw(t, "until")
	case group.KindKnown:
		m.Known, m.Voter = group.Known(rapid.IntRange(int(group.KnowsNothing), int(group.KnowsEpochs)).Draw(t, "known")), rapid.Bool().Draw(t, "voter")
		m.Needed = rapid.Bool().Draw(t, "needed")
	case group.KindRequest:
		m.Serial, m.Request = number.Draw(t, "serial"), group.Request(rapid.IntRange(int(group.RequestStatus), int(group.RequestChange)).Draw(t, "request"))
		m.Add, m.Remove = rapid.Uint32().Draw(t, "add"), rapid.Uint32().Draw(t, "remove")
	case group.KindReply:
		m.Serial, m.Refusal = number.Draw(t, "serial"), rapid.StringN(-1, -1, group.MaxRefusal).Draw(t, "refusal")
		for range rapid.IntRange(0, 9).Draw(t, "members") {
			m.Members = append(m.Members, group.Progressed{Member: rapid.Uint32().Draw(t, "member"), Away: rapid.Bool().Draw(t, "away"), Safe: number.Draw(t, "safe")})
		}
	}
	return m
}

// TestCodec: what is sent is received, a part of it is refused, and so is a frame with a changed bit.
func TestCodec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawMessage(t)
		b, err := appendMessage(make([]byte, frameHeader), &want)
		if err != nil {
			t.Fatal(err)
		}
		b = frame(b)
		body, err := readFrame(bytes.NewReader(b), nil, maxFrame)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseMessage(body)
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" || err != nil {
			t.Fatalf("%v\n%s", err, diff)
		}
		if want.Kind != group.KindElection && want.Kind != group.KindReport && want.Kind != group.KindReply { // shorter ones of these may be possible messages
			if _, err := parseMessage(body[:rapid.IntRange(0, len(body)-1).Draw(t, "cut")]); err == nil {
				t.Fatal("a part of a message is taken")
			}
		}
		bit := rapid.IntRange(32, 8*len(b)-1).Draw(t, "bit")
		b[bit/8] ^= 1 << (bit % 8)
		if _, err := readFrame(bytes.NewReader(b), nil, maxFrame); err == nil {
			t.Fatalf("a frame with a changed bit %d is taken", bit)
		}
	})
}

// TestImpossibleEntries: raft makes entries durable before it looks at them, so those that cannot be are
// refused before.
func TestImpossibleEntries(t *testing.T) {
	entry := func(index, term uint64, kind raftpb.EntryType, data string) *raftpb.Entry {
		return &raftpb.Entry{Index: &index, Term: &term, Type: &kind, Data: []byte(data)}
	}
	for _, c := range []struct {
		name    string
		kind    raftpb.MessageType
		entries []*raftpb.Entry
		ok      bool
	}{
		{"two that follow", raftpb.MsgApp, []*raftpb.Entry{entry(8, 3, raftpb.EntryNormal, ""), entry(9, 4, raftpb.EntryConfChangeV2, "")}, true},
		{"a gap", raftpb.MsgApp, []*raftpb.Entry{entry(8, 3, raftpb.EntryNormal, ""), entry(10, 4, raftpb.EntryNormal, "")}, false},
		{"not the next one", raftpb.MsgApp, []*raftpb.Entry{entry(7, 3, raftpb.EntryNormal, "")}, false},
		{"an earlier term", raftpb.MsgApp, []*raftpb.Entry{entry(8, 2, raftpb.EntryNormal, "")}, false},
		{"a later term than the message's", raftpb.MsgApp, []*raftpb.Entry{entry(8, 5, raftpb.EntryNormal, "")}, false},
		{"a change that cannot be read", raftpb.MsgApp, []*raftpb.Entry{entry(8, 3, raftpb.EntryConfChangeV2, "\xff")}, false},
		{"an old kind of change", raftpb.MsgApp, []*raftpb.Entry{entry(8, 3, raftpb.EntryConfChange, "")}, false},
		{"a vote with entries", raftpb.MsgVote, []*raftpb.Entry{entry(8, 3, raftpb.EntryNormal, "")}, false},
	} {
		m := &election.Message{Type: &c.kind, Term: new(uint64(4)), LogTerm: new(uint64(3)), Index: new(uint64(7)), Entries: c.entries}
		if err := checkElection(m); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// FuzzFrames: bytes from a peer may be anything. What is taken is the same when it is sent on.
func FuzzFrames(f *testing.F) {
	h := hello{1, 2, "orders"}
	f.Add(h.append(nil))
	for _, m := range []group.Message{
		{Kind: group.KindSeal, Epoch: 3},
		{Kind: group.KindReport, Epoch: 3, Serial: 4, Log: group.Log{End: group.Place{Epoch: 2, Position: 7}, Table: group.Table{{Epoch: 2, First: 1}}}},
		{Kind: group.KindFollow, Epoch: 3, Serial: 4, After: 5, Until: 6},
		{Kind: group.KindRequest, Epoch: 3, Serial: 4, Request: group.RequestChange, Add: 4, Remove: 2},
		{Kind: group.KindReply, Epoch: 3, Serial: 4, Refusal: "no", Members: []group.Progressed{{Member: 1, Away: true, Safe: 9}}},
		{Kind: group.KindElection, Election: &election.Message{Type: raftpb.MsgVote.Enum(), Term: new(uint64(3))}},
	} {
		b, err := appendMessage(nil, &m)
		testenv.Must(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := parseHello(b); err == nil && !bytes.Equal(h.append(nil), b) {
			t.Errorf("the hello %+v is sent as %x", h, h.append(nil))
		}
		m, err := parseMessage(b)
		if err != nil {
			return
		}
		again, err := appendMessage(nil, &m)
		testenv.Must(t, err)
		twice, err := parseMessage(again)
		if diff := cmp.Diff(m, twice, protocmp.Transform()); diff != "" || err != nil {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}
