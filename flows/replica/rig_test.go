package replica

import (
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/roce/rocetest"
	"github.com/unifiedd/unifiedd/umem"
)

// member is a machine with links, a worker, and a log in memory.
type member struct {
	testing.TB
	number   uint32
	ns       rocetest.Machine
	region   *umem.Region
	at       *stream.Endpoint
	book     *umem.Book
	hands    *umem.Holder
	free     umem.FreeList
	links    *Links
	listener *connect.Listener
	loop     *rocetest.Loop

	// Of the worker.
	log     [][]byte     // records
	offer   uint64       // records to make
	keep    bool         // the disk returns nothing
	made    []umem.Frame // what it keeps
	forget  bool         // the log only counts
	taken   uint64
	batch   [batchSize]umem.Frame
	epoch   uint32
	safe    map[uint32]protocol.Have
	blocked int           // rounds in which there was no room
	lag     time.Duration // of a follower's rounds

	replicator *Replicator // nil: a test of links alone
	driver     *Driver
	acked      uint64      // committed position, as the leader knows it
	slow       atomic.Bool // see late
	making     *Link       // of the worker: see late
	before     uint64      // stale messages when that link was attached

	reads atomic.Pointer[func(*segments) Records] // what followers that catch up get records from; nil: the segments
}

const message = 1024

// newMembers returns two members on machines that are connected.
func newMembers(t testing.TB, hold, lag int) (a, b *member) {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	near, far := rocetest.Pair(t)
	return newMember(t, 1, near, hold, lag), newMember(t, 2, far, hold, lag)
}

func newMember(t testing.TB, number uint32, at rocetest.Machine, hold, lag int) *member {
	t.Helper()
	m := &member{TB: t, number: number, ns: at, epoch: 5, safe: map[uint32]protocol.Have{}}
	region, d := at.Start(t, umem.Config{Size: 32 << 20, Pages: umem.Ordinary})
	var err error
	m.region = region
	m.at, err = stream.OpenEndpoint(d, region)
	m.must(err)
	t.Cleanup(func() { m.must(m.at.Close()) })
	m.listener, err = connect.Listen(t.Context(), "127.0.0.1:0", connect.Config{}) // TCP does not use the machines' network
	m.must(err)
	t.Cleanup(func() { m.must(m.listener.Close()) })
	m.book = m.region.NewBook("member")
	m.hands, err = m.book.NewHolder(umem.OwnerWorker, "member")
	m.must(err)
	frames := make([]umem.Frame, 1024)
	frames = frames[:m.hands.Take(frames)]
	m.free.Push(frames...)
	m.links, err = Open(Config{Name: "orders", Worker: m.hands, Endpoint: m.at, Links: 4, Message: message, Landing: 64, Window: 256, Hold: hold, Lag: lag, Copies: 64,
		Free: &m.free, Heartbeat: 5 * time.Millisecond})
	m.must(err)
	m.loop = rocetest.NewLoop(m.round, func() { time.Sleep(50*time.Microsecond + m.lag) })
	t.Cleanup(func() {
		m.loop.Stop()
		m.must(m.links.Close())
		m.hands.Give(m.free.Top(m.free.Len()))
		m.hands.Close()
		m.must(m.book.Close())
	})
	return m
}

func (m *member) must(err error) { m.Helper(); testenv.Must(m, err) }

// round takes records, makes some, and tells how far they are written.
func (m *member) round() (moved bool) {
	if m.replicator != nil {
		return m.replicate()
	}
	n := m.links.Recv(m.batch[:])
	for _, f := range m.batch[:n] {
		m.taken++
		if !m.forget {
			m.log = append(m.log, append([]byte(nil), m.region.Bytes(f)...))
		}
		f.Options = 0
		m.free.Push(f)
	}
	for made := 0; m.offer > 0 && made < 32; made++ {
		if !m.links.Room() || m.free.Len() < 320 {
			m.blocked++
			break
		}
		m.make()
		m.offer--
		moved = true
	}
	at := uint64(len(m.log))
	if m.forget {
		at = m.taken
	}
	m.links.Safe(at, at/2)
	m.links.Progress(func(member uint32, h protocol.Have) { m.safe[member] = h })
	m.links.Supply()
	testenv.Check(m, m.links.Poll(time.Now()))
	m.book.Publish()
	return moved || n > 0
}

// make appends a record in a frame and offers it.
func (m *member) make() {
	var f [1]umem.Frame
	m.free.Pop(f[:])
	start, _ := m.region.Start(f[0])
	position := uint64(len(m.log)) + 1
	record := makeRecord(position, m.epoch)
	f[0].Addr, f[0].Len, f[0].Options = start+64, uint32(len(record)), 0
	copy(m.region.Bytes(f[0]), record)
	m.log = append(m.log, record)
	m.links.Offer(f[0])
	if m.keep {
		m.made = append(m.made, f[0])
	} else {
		m.links.Returned().Push(f[0])
	}
}

// makeRecord makes the record of a position.
func makeRecord(position uint64, epoch uint32) []byte {
	random := rand.New(rand.NewPCG(position, uint64(epoch)))
	payload := make([]byte, random.IntN(message-protocol.HeaderLen))
	for i := range payload {
		payload[i] = byte(random.Uint32())
	}
	b := make([]byte, protocol.HeaderLen, protocol.HeaderLen+len(payload))
	protocol.PutData(b, &protocol.Data{Sequence: position, Session: 7, Length: uint32(len(payload)), Checksum: protocol.Checksum(payload)})
	protocol.SetRecord(b, position, 0, epoch)
	return append(b, payload...)
}

func (m *member) do(f func() error) error { return m.loop.Do(f) }

// late is do for the driver. On a slow machine a link is connected, for this side, only when the leader has said all that
// it may say without an answer.
func (m *member) late(f func() error) error {
	for m.slow.Load() {
		waits := false
		if err := m.do(func() error {
			k, stale := m.links.incoming, m.links.Stats().Stale
			if k != m.making {
				m.making, m.before = k, stale
			}
			waits = k != nil && !k.over && !k.connected && k.echo+stale-m.before < controls-2
			return nil
		}); err != nil {
			return err
		}
		if !waits {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return m.do(f)
}

func (m *member) on(f func()) {
	m.Helper()
	m.must(m.do(func() error { f(); return nil }))
}

// answer answers one member that dials.
func (m *member) answer() (k *Link) {
	m.Helper()
	q, err := m.listener.Accept(m.Context())
	m.must(err)
	h, err := protocol.ParseHello(q.Remote().Hello)
	m.must(err)
	var fence uint64
	m.on(func() { fence = m.links.Fence() })
	k, _, err = m.links.Answer(m.do, 0, q, &h, m.number, false, fence)
	m.must(err)
	return k
}

// follow connects two members: b gets a's records.
func follow(a, b *member, next uint64) (at, to *Link) {
	b.Helper()
	answered := make(chan *Link)
	go func() { answered <- a.answer() }()
	to, _, err := b.links.Dial(b.Context(), b.do, Want{Group: "orders", Self: b.number, Member: a.number, Address: a.listener.Addr().String(), Epoch: uint64(a.epoch), Next: next, Of: uint64(a.epoch)})
	b.must(err)
	return <-answered, to
}

// eventually waits until ok, which runs on the worker's thread, is true.
func (m *member) eventually(what string, ok func() bool) {
	m.Helper()
	for deadline := time.Now().Add(testenv.Within(20 * time.Second)); ; time.Sleep(time.Millisecond) {
		yes := false
		m.on(func() { yes = ok() })
		if yes {
			return
		}
		if time.Now().After(deadline) {
			m.Fatalf("not in time: %s", what)
		}
	}
}

// equal checks that a member has the first records of another.
func equal(t testing.TB, a, b *member) {
	t.Helper()
	var of, have [][]byte
	a.on(func() { of = a.log })
	b.on(func() { have = b.log })
	if len(have) > len(of) {
		t.Fatalf("the follower has %d of %d records", len(have), len(of))
	}
	for i := range have {
		if string(have[i]) != string(of[i]) {
			t.Fatalf("record %d differs", i+1)
		}
	}
}

// segments reads a member's log as a *journal.Reader does. It lacks the newest records, which are not
// written yet.
type segments struct {
	*member
	next    uint64
	missing uint64
	ahead   [][]byte
}

func (s *segments) Position() uint64 { return s.next }

func (s *segments) Next() (journal.Record, error) { return s.Poll() }

func (s *segments) Poll() (rec journal.Record, err error) {
	if len(s.ahead) == 0 {
		s.on(func() {
			end := uint64(max(0, len(s.log)-int(s.missing)))
			s.ahead = s.log[min(s.next-1, end):min(s.next+255, end)]
		})
	}
	if len(s.ahead) == 0 {
		s.missing = 0
		return rec, io.EOF
	}
	rec.Raw, rec.Position = s.ahead[0], s.next
	s.ahead = s.ahead[1:]
	s.next++
	return rec, nil
}

func (m *member) String() string { return fmt.Sprintf("member %d", m.number) }
