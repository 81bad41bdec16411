package replica

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/group"
	"github.com/unifiedd/unifiedd/flows/group/election"
	"github.com/unifiedd/unifiedd/flows/group/transport"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/newfile"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/roce/rocetest"
	"github.com/unifiedd/unifiedd/umem"
)

// suspect is the silence after which the members of a test elect a leader. It is longer than the pauses of
// a machine with other tests, whose elections would change the positions.
const suspect = time.Second

// newGroup makes a group of three members on machines that a switch connects. Their logs are in memory.
func newGroup(t *testing.T) []*member {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	var all []*member
	var peers []Peer
	for i, e := range testenv.NewSwitch(t, 3, testenv.PairOptions{MTU: 4200}) {
		m := newMember(t, uint32(i+1), rocetest.At(e), 1024, 900)
		all = append(all, m)
		peers = append(peers, Peer{Peer: transport.Peer{Number: m.number}, Records: []string{m.listener.Addr().String()}})
	}
	for _, m := range all {
		m.join(peers)
		peers[m.number-1].Addresses = []string{m.driver.Addr().String()}
	}
	for _, m := range all {
		m.take(peers)
	}
	return all
}

// join prepares a member's part in the group.
func (m *member) join(peers []Peer) {
	m.Helper()
	dir, err := newfile.OpenDir(m.TempDir())
	m.must(err)
	m.Cleanup(func() { m.must(dir.Close()) })
	first := election.First([]uint32{1, 2, 3})
	state, err := MakeState(dir, "orders"+StateSuffix, m.number, first)
	m.must(err)
	m.Cleanup(func() { m.must(state.Close()) })
	out := io.Discard
	if testing.Verbose() {
		out = os.Stderr
	}
	log := slog.New(slog.NewTextHandler(out, nil)).With("self", m.number)
	var replicator *Replicator
	m.on(func() { replicator = NewReplicator(m.links, m.number, group.Log{}, new(atomic.Uint64)) })
	m.driver, err = OpenDriver(DriverConfig{
		Group: "orders", Self: m.number, Peers: peers, Listen: "127.0.0.1:0", Suspect: suspect,
		Links: m.links, Replicator: replicator, Log: m, State: state, Elections: first, Do: m.late, Logger: log,
	})
	m.must(err)
	m.on(func() { m.replicator = replicator })
}

// take begins the member's part in the group.
func (m *member) take(peers []Peer) {
	m.driver.setPeers(peers)
	ctx, cancel := context.WithCancel(m.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.driver.Run(ctx) }()
	go m.accept(ctx)
	m.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			m.Errorf("%v: %v", m, err)
		}
		m.must(m.driver.Close())
	})
}

// accept serves members that want records.
func (m *member) accept(ctx context.Context) {
	for {
		q, err := m.listener.Accept(ctx)
		if err != nil {
			return
		}
		h, err := protocol.ParseHello(q.Remote().Hello)
		if err != nil {
			m.Error(err)
			return
		}
		go func() {
			_ = m.driver.Serve(0, q, &h, func(from uint64) (Records, func() error, error) {
				r := &segments{member: m, next: from}
				if reads := m.reads.Load(); reads != nil {
					return (*reads)(r), func() error { return nil }, nil
				}
				return r, func() error { return nil }, nil
			})
		}()
	}
}

// replicate is a round of a member of a group: a leader appends records as fast as it can.
func (m *member) replicate() (moved bool) {
	var batch [batchSize]umem.Frame
	n := m.links.Recv(batch[:])
	m.replicator.Took(batch[:n])
	for _, f := range batch[:n] {
		m.log = append(m.log, append([]byte(nil), m.region.Bytes(f)...))
		f.Options = 0
		m.free.Push(f)
	}
	for made := 0; m.offer > 0 && made < 32 && m.replicator.Open() && m.links.Room() && m.free.Len() > 320; made++ {
		m.make()
		m.replicator.Appended(uint64(len(m.log)))
		m.offer--
		moved = true
	}
	end := uint64(len(m.log))
	m.acked = m.replicator.Round(end, end)
	m.links.Supply()
	testenv.Check(m, m.links.Poll(time.Now()))
	m.book.Publish()
	return moved || n > 0
}

// Begin implements Log.
func (m *member) Begin(epoch uint64, c *group.Config) (bool, error) {
	if m.free.Len() == 0 {
		return false, nil
	}
	m.epoch = uint32(epoch)
	m.links.Begin(uint64(len(m.log)) + 1)
	m.make()
	m.replicator.Lead(epoch, uint64(len(m.log)), c)
	return true, nil
}

// StepDown implements Log.
func (m *member) StepDown() {}

// leader returns the member that takes records, once there is one.
func leader(t *testing.T, all []*member, but *member) (found *member) {
	t.Helper()
	for deadline := time.Now().Add(testenv.Within(20 * time.Second)); found == nil; time.Sleep(time.Millisecond) {
		for _, m := range all {
			if m != but {
				m.on(func() {
					if m.replicator.Open() {
						found = m
					}
				})
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("no member takes records")
		}
	}
	return found
}

// TestGroup: three members elect a leader, whose records all get. When the leader is cut off, another
// takes over with every committed record. When the first comes back, it follows.
func TestGroup(t *testing.T) {
	all := newGroup(t)
	first := leader(t, all, nil)
	first.on(func() { first.offer = 2000 })
	for _, m := range all {
		m.eventually("all have all records", func() bool { return m.acked >= 2001 })
		equal(t, first, m)
	}
	first.ns.SetDown(t)
	began := time.Now()
	next := leader(t, all, first)
	t.Logf("another member takes records %v after the leader was cut off; members suspect after %v", time.Since(began), suspect)
	next.on(func() { next.offer = 500 })
	next.eventually("records are committed without the first leader", func() bool { return next.acked >= 2502 })
	var epochs []uint32
	next.on(func() {
		for _, r := range next.log {
			epochs = append(epochs, binary.BigEndian.Uint32(r[56:]))
		}
	})
	if epochs[2000] == epochs[2001] {
		t.Errorf("position 2001 is of epoch %d, and 2002 of %d", epochs[2000], epochs[2001])
	}
	first.ns.SetUp(t)
	first.eventually("the first leader follows", func() bool { return first.acked >= 2502 && !first.replicator.Leads() })
	equal(t, next, first)
}

// TestSlowHandshake: a member whose threads get no processor at the end of a handshake follows, and the leader stays. It
// took none of the leader's commit messages before, and the leader said nothing more: nobody ended that link.
func TestSlowHandshake(t *testing.T) {
	all := newGroup(t)
	first := leader(t, all, nil)
	epoch := first.driver.State().Epoch
	slow := all[first.number%3]
	slow.eventually("it follows", func() bool { return slow.acked >= 1 })
	slow.slow.Store(true)
	slow.on(func() { slow.must(slow.links.End(slow.links.incoming, errors.New("cut by the test"))) })
	slow.eventually("it has another link", func() bool { return slow.links.incoming != nil && slow.links.incoming.connected })
	first.on(func() { first.offer = 100 })
	for _, m := range all {
		m.eventually("all have all records", func() bool { return m.acked >= 101 })
		equal(t, first, m)
	}
	if s := slow.driver.State(); s.Epoch != epoch || s.Leader != first.number {
		t.Errorf("member %d leads epoch %d, and before member %d epoch %d", s.Leader, s.Epoch, first.number, epoch)
	}
}

// TestSilentLink: a follower ends a link over which the leader says nothing, though it leads, and gets another one. Until
// then no election takes place.
func TestSilentLink(t *testing.T) {
	all := newGroup(t)
	first := leader(t, all, nil)
	epoch := first.driver.State().Epoch
	lone := all[first.number%3]
	lone.eventually("it follows", func() bool { return lone.acked >= 1 })
	first.on(func() {
		for _, k := range first.links.slots {
			if k != nil && k.feeds && k.member == lone.number {
				k.count += controls // as if these had been lost: the leader waits until they are confirmed
			}
		}
	})
	lone.eventually("it ends the link", func() bool { return lone.driver.State().Silent == 1 })
	if lone.driver.State().Elections == 0 {
		t.Error("it has not asked for an election before")
	}
	first.on(func() { first.offer = 100 })
	for _, m := range all {
		m.eventually("all have all records", func() bool { return m.acked >= 101 })
		equal(t, first, m)
	}
	if s := lone.driver.State(); s.Epoch != epoch || s.Leader != first.number {
		t.Errorf("member %d leads epoch %d, and before member %d epoch %d", s.Leader, s.Epoch, first.number, epoch)
	}
}

// TestTransfer: a leader hands over although the member that is to lead did not get the first message: raft gives up then.
// It does not try with a member that is away.
func TestTransfer(t *testing.T) {
	all := newGroup(t)
	first := leader(t, all, nil)
	to := all[first.number%3]
	to.eventually("it follows", func() bool { return to.acked >= 1 })
	places := func(of *member, address string) (peers []Peer) {
		for _, m := range all {
			p := Peer{Peer: transport.Peer{Number: m.number, Addresses: []string{m.driver.Addr().String()}}, Records: []string{m.listener.Addr().String()}}
			if m == of {
				p.Addresses = []string{address}
			}
			peers = append(peers, p)
		}
		return peers
	}
	first.driver.setPeers(places(to, "127.0.0.1:1")) // nobody listens there
	back := time.AfterFunc(2*suspect, func() { first.driver.setPeers(places(nil, "")) })
	defer back.Stop()
	testenv.Must(t, first.driver.Transfer(t.Context(), to.number))
	if next := leader(t, all, first); next != to {
		t.Errorf("%v leads, and not %v", next, to)
	}
	away := all[to.number%3]
	away.ns.SetDown(t)
	testenv.Wait(t, testenv.Within(20*time.Second), "a member to be away", func() bool {
		return slices.ContainsFunc(to.driver.State().Standings, func(s Standing) bool { return s.Number == away.number && s.Away })
	})
	if err := to.driver.Transfer(t.Context(), away.number); err == nil || !strings.HasSuffix(err.Error(), "is away") {
		t.Errorf("transfer to a member that is away: %v", err)
	}
	away.ns.SetUp(t)
}
