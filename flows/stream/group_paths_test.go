package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// TestNextInGroup: when a connection ends, the sender tries the leader's other paths first, and then the other members.
// It goes to the leader that a member names, over a path that may work.
func TestNextInGroup(t *testing.T) {
	refusal := func(leader string) error {
		return fmt.Errorf("the peer refused: not_leader epoch=7%s: %w", leader, protocol.NotLeader)
	}
	reset, began := errors.New("connection reset"), time.Now() // all that has failed rests at that time
	for _, c := range []struct {
		name   string
		failed []string // paths that have failed before, in this order
		from   string   // the last connection, or attempt
		cause  error
		to     string
		wait   bool
		again  bool // it is another path to the same member
	}{
		{"a path fails", nil, "a:1", errSilent, "a:2", false, true},
		{"the second path fails", nil, "a:2", errSilent, "a:1", false, true},
		{"a path that has failed is not tried again at once", []string{"a:1"}, "a:2", errSilent, "a:3", false, true},
		{"all paths to a member fail", []string{"a:1", "a:2"}, "a:3", reset, "b:1", true, false},
		{"the first path to the next member has failed, too", []string{"a:1", "a:2", "b:1"}, "a:3", reset, "b:2", true, false},
		{"the last member is followed by the first one", []string{"c:1", "c:2"}, "c:3", reset, "a:1", true, false},
		{"a member names the leader", nil, "a:1", refusal(" leader=c:1"), "c:1", false, false},
		{"a member names the leader by an address of another path", nil, "a:1", refusal(" leader=c:2"), "c:1", false, false},
		{"a member that was reached over the second path names the leader", []string{"a:1"}, "a:2", refusal(" leader=c:1"), "c:2", false, false},
		{"that path to the leader has failed", []string{"a:1", "c:2"}, "a:2", refusal(" leader=c:1"), "c:1", false, false},
		{"all paths to the leader have failed: the one that will have rested first", []string{"c:2", "c:1", "c:3"}, "a:1", refusal(" leader=c:1"), "c:2", false, false},
		{"a member names a leader at an address that the sender does not know", nil, "a:2", refusal(" leader=evil:1"), "b:2", false, false},
		{"a member names no leader", nil, "c:2", refusal(""), "a:2", false, false},
		{"a member lacks what another one acknowledged", nil, "a:1", errOther, "b:1", true, false},
	} {
		s := groupSender()
		for _, address := range c.failed {
			s.pathOf(address).Leaves(reset)
			time.Sleep(time.Microsecond) // so that the times differ
		}
		s.dialBy(s.pathOf(c.from))
		failures := s.path.failures.Load()
		wait := s.next(c.cause, false, began)
		if s.path.address != c.to || s.to.address() != c.to || wait != c.wait || s.again != c.again {
			t.Errorf("%s: it dials %s (%s), waits %v, same member %v; want %s, %v, %v", c.name, s.path.address, s.to.address(), wait, s.again, c.to, c.wait, c.again)
		}
		if refused := doesNotLead(c.cause) || errors.Is(c.cause, errOther); refused != (s.pathOf(c.from).failures.Load() == failures) {
			t.Errorf("%s: the path to %s has %d failures, and had %d", c.name, c.from, s.pathOf(c.from).failures.Load(), failures)
		}
	}
}

// TestSilentMemberOverPaths: a member that is silent over all paths is left, and others are not believed for a while that it
// leads. Then it is dialed again.
func TestSilentMemberOverPaths(t *testing.T) {
	s, began := groupSender(), time.Now()
	leads := fmt.Errorf("the peer refused: not_leader epoch=7 leader=a:1: %w", protocol.NotLeader)
	for i, c := range []struct {
		cause   error
		moved   bool
		after   time.Duration
		to      string
		timeout time.Duration
	}{
		{errSilent, true, 0, "a:2", 2 * leastTimeout},
		{errSilent, false, 0, "a:3", 4 * leastTimeout},
		{errSilent, false, 0, "b:1", maxTimeout},
		{leads, false, 0, "c:1", maxTimeout},
		{leads, false, maxTimeout, "a:1", maxTimeout},
	} {
		if s.next(c.cause, c.moved, began.Add(c.after)); s.path.address != c.to || s.to.timeout != c.timeout {
			t.Errorf("step %d: it dials %s, with a timeout of %v; want %s, %v", i+1, s.path.address, s.to.timeout, c.to, c.timeout)
		}
	}
}

// groupSender returns a sender to three members over three paths, which makes no connections.
func groupSender() *Sender {
	c := SenderConfig{Address: "a:1", Others: []string{"b:1", "c:1"}, Paths: []Path{{Address: "a:2", Others: []string{"b:2", "c:2"}}, {Address: "a:3", Others: []string{"b:3", "c:3"}}}}
	s := &Sender{config: c, to: newTarget(&c), paths: c.listPaths()}
	s.dialBy(s.paths[0])
	return s
}

// pathOf returns the path to an address.
func (s *Sender) pathOf(address string) *senderPath {
	return s.paths[slices.IndexFunc(s.paths, func(p *senderPath) bool { return p.address == address })]
}

// TestPathsOfGroup: each path has an address of each member, and one is used at a time.
func TestPathsOfGroup(t *testing.T) {
	good := SenderConfig{Endpoint: &Endpoint{}, Worker: &umem.Holder{}, Address: "a:1", Others: []string{"b:1"}, Paths: []Path{{Address: "a:2", Others: []string{"b:2"}}}, Message: 1024}
	testenv.Check(t, good.check())
	for want, change := range map[string]func(*SenderConfig){
		"path to a:2: it has addresses of 0 other members of the group, and there are 1": func(c *SenderConfig) { c.Paths = []Path{{Address: "a:2"}} },
		"path to a:2: it has addresses of 1 other members of the group, and there are 0": func(c *SenderConfig) { c.Others = nil },
		"members of a group take messages over one path at a time":                       func(c *SenderConfig) { c.Active = true },
	} {
		c := good
		change(&c)
		if err := c.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it says %v; want %q", err, want)
		}
	}
}

// pathGroup is two members of a group at both devices, and a sender with paths to both.
type pathGroup struct {
	*source
	a, b  *taker
	leads chan struct{} // closed when b leads, and not a any more
	had   uint64        // messages that a got
}

// newGroup opens a group, in which the first member leads, and a sender that knows the other one as the first.
func (g *pathRig) newGroup(t *testing.T) *pathGroup {
	t.Helper()
	far, near := *g.far, *g.near
	far.TB, near.TB = t, t
	k := &pathGroup{leads: make(chan struct{})}
	over := func() bool {
		select {
		case <-k.leads:
			return true
		default:
			return false
		}
	}
	open := func(leads func() bool, leader func() *taker, standby func(context.Context) error, next func(uint64, string) (uint64, error)) *taker {
		c := receiverConfig()
		c.Others, c.Standby, c.Next, c.Origins = far.more, standby, next, true
		c.Permit = func(_ connect.Peer, h protocol.Hello) error {
			if h.Capabilities&protocol.CapabilityStandby == 0 && !leads() {
				return fmt.Errorf("not_leader epoch=7 leader=%s: %w", leader().address, protocol.NotLeader)
			}
			return nil
		}
		return far.newTaker(c, 128)
	}
	k.a = open(func() bool { return !over() }, func() *taker { return k.b }, func(ctx context.Context) error {
		if over() {
			<-ctx.Done()
		}
		return ctx.Err()
	}, func(uint64, string) (uint64, error) { return 1, nil })
	k.b = open(over, func() *taker { return k.a }, func(ctx context.Context) error {
		select {
		case <-k.leads:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}, func(uint64, string) (uint64, error) { return k.had + 1, nil })
	c := senderConfig(k.b.address)
	c.Others = []string{k.a.address}
	c.Device = "first"
	c.Paths = []Path{{Device: "second", Endpoint: near.more[0], Address: k.b.others[0], Others: []string{k.a.others[0]}}}
	k.source = near.newSource(c)
	return k
}

// Places in SenderStats.Paths of the group's paths.
const (
	bFirst = iota
	bSecond
	aFirst
	aSecond
)

// testPathsToGroup: when the path to the leader fails under traffic, the sender goes on with it over the other one, and comes
// back when it is well. Each message arrives once, and none at the other member.
func testPathsToGroup(t *testing.T, g *pathRig) {
	k := g.newGroup(t)
	k.more(1000)
	k.await()
	k.atPath(aFirst)
	for range 2 {
		mend := g.cut(t, 0)
		k.more(1000)
		if s := k.atPath(aSecond); s.Paths[aFirst].State == PathConnected || s.Paths[aFirst].Failures == 0 || s.Paths[aFirst].Left.IsZero() || s.Address != k.a.others[0] {
			t.Errorf("the first path to the leader: %+v, and the sender is at %s", s.Paths[aFirst], s.Address)
		}
		k.await()
		mend()
		k.atPath(aFirst)
	}
	k.more(1000)
	k.await()
	k.a.got(4000)
	k.a.whole(1)
	if s := k.s.Stats(); s.Sessions != 0 || s.Acknowledged != 4000 || s.Dropped != 0 {
		t.Errorf("the sender in the end: %+v", s)
	}
	k.b.on(func() {
		if k.b.messages != 0 {
			t.Errorf("the member that does not lead has %d messages", k.b.messages)
		}
	})
}

// testLeaderOverPath: a sender whose first paths lead nowhere reaches the leader, and stands by at the other member, over the
// second ones. When that one leads, the sender is there at once, and goes over to its first path when that is well.
func testLeaderOverPath(t *testing.T, g *pathRig) {
	mend := g.cut(t, 0)
	k := g.newGroup(t)
	k.more(1000)
	k.await()
	k.atPath(aSecond)
	k.stats("a connection that stands by", func(s SenderStats) bool { return s.Standby == 1 })
	k.ns.Do(t, func() {
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(20*time.Second))
		defer cancel()
		if next, err := k.s.NextOf(ctx, 77); next != 1 || err != nil {
			t.Errorf("message %d of another session is next (%v), want 1", next, err)
		}
	})
	k.a.got(1000)
	k.a.whole(1)
	k.had = 1000
	close(k.leads)
	k.atPath(bSecond)
	k.more(1000)
	k.await()
	mend()
	k.atPath(bFirst)
	k.more(1000)
	k.await()
	k.b.got(2000)
	k.b.whole(1001)
	if s := k.s.Stats(); s.Moves == 0 || s.Sessions != 0 || s.Acknowledged != 3000 || s.Dropped != 0 || s.Forgotten != 0 {
		t.Errorf("the sender in the end: %+v", s)
	}
}
