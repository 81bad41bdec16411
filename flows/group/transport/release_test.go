package transport

import (
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/unifiedd/unifiedd/flows/group"
	"github.com/unifiedd/unifiedd/flows/group/election"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

func vote() *election.Message {
	return &election.Message{Type: raftpb.MsgVote.Enum(), Term: new(uint64(3))}
}

// TestReleases: a member says its release with each message of an election. It is shown until the connection ends, and one
// of a release that says nothing is shown as such.
func TestReleases(t *testing.T) {
	a, b := open(t, Config{Self: 1, Release: "1.2.3"}), open(t, Config{Self: 2})
	join := func(a, b *member) {
		a.SetPeers([]Peer{a.as(1, ""), b.as(2, "")})
		b.SetPeers([]Peer{a.as(1, ""), b.as(2, "")})
		eventually(t, "both are connected", func() bool { return a.Connected(2) && b.Connected(1) })
		a.Send(&group.Message{To: 2, Kind: group.KindElection, Election: vote()})
		b.Send(&group.Message{To: 1, Kind: group.KindElection, Election: vote()})
		for _, m := range []group.Message{<-a.got, <-b.got} {
			if !proto.Equal(m.Election, vote()) {
				t.Errorf("raft gets %v, want %v", m.Election, vote())
			}
		}
	}
	join(a, b)
	if got := b.Releases(); got[1] != "1.2.3" || got[2] != "" || b.Older(1) {
		t.Errorf("member 2 knows %v", got)
	}
	if got := a.Releases(); got[1] != "1.2.3" || got[2] != "" {
		t.Errorf("member 1 knows %v", got)
	}
	testenv.Must(t, a.Close())
	<-b.lost
	if got := b.Releases(); got[1] != "" || b.Older(1) {
		t.Errorf("member 1 is gone, and member 2 knows %v", got)
	}
	older := open(t, Config{Self: 1})
	join(older, b)
	if got := b.Releases(); got[1] != "" || !b.Older(1) {
		t.Errorf("member 1 says nothing now, and member 2 knows %v", got)
	}
}

// TestTakeRelease: what a member says is shown only if people can read it, and raft gets no field that it does not know.
func TestTakeRelease(t *testing.T) {
	other := protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 7)
	wrong := protowire.AppendVarint(protowire.AppendTag(nil, releaseField, protowire.VarintType), 7)
	text := func(s string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, releaseField, protowire.BytesType), s)
	}
	for _, c := range []struct {
		name  string
		field []byte
		want  string
	}{
		{"none", nil, ""},
		{"a release", fieldOf("0.1.0-4-gabc"), "0.1.0-4-gabc"},
		{"behind another field", append(other, fieldOf("2")...), "2"},
		{"another kind", wrong, ""},
		{"an escape", text("1\x1b[2J"), ""},
		{"a line", text("1\nm9 leads"), ""},
		{"a space", text("1 2"), ""},
		{"no ASCII", text("1é"), ""},
		{"nothing", text(""), ""},
		{"63 characters", text(strings.Repeat("x", 63)), strings.Repeat("x", 63)},
		{"64 characters", text(strings.Repeat("x", 64)), ""},
	} {
		b, err := appendMessage(nil, &group.Message{Kind: group.KindElection, Election: vote()})
		testenv.Must(t, err)
		m, err := parseMessage(append(b, c.field...))
		testenv.Must(t, err)
		if got := takeRelease(m.Election); got != c.want || !proto.Equal(m.Election, vote()) {
			t.Errorf("%s: %q, want %q; raft gets %v", c.name, got, c.want, m.Election)
		}
	}
	for _, release := range []string{"", "a b", strings.Repeat("x", 64)} {
		if b := fieldOf(release); b != nil {
			t.Errorf("%q is said as %x", release, b)
		}
	}
}
