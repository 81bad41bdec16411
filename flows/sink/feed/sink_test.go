package feed

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/feed"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/sink/discard"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// slow is the sink behind the stage. It takes messages only while there is room, and remembers the first bytes.
type slow struct {
	*discard.Sink
	region  *umem.Region
	room    int
	got     []uint64
	long    uint32 // of a message that is longer than the others
	wrong   int
	blocked int
}

func (s *slow) Write(b *pipeline.Batch, now time.Time) bool {
	n := min(s.room, b.Len)
	for _, f := range b.Frames[:n] {
		m := s.region.Bytes(f)
		if len(s.got) < cap(s.got) {
			s.got = append(s.got, binary.BigEndian.Uint64(m))
		}
		if len(m) != 8+int(m[7])%40 && uint32(len(m)) != s.long {
			s.wrong++
		}
	}
	s.room -= n
	taken := pipeline.Batch{Frames: b.Frames[:n:n], Len: n}
	s.Sink.Write(&taken, now)
	b.Drop(n)
	return b.Len == 0
}

func (s *slow) Block() { s.blocked++ }

// rig is the stage with frames of a region.
type rig struct {
	*Sink
	slow   *slow
	region *umem.Region
	free   *umem.FreeList
	batch  pipeline.Batch
}

var group = netip.MustParseAddr("239.1.1.1")

func newRig(t *testing.T, frames int, change ...func(*config.Feed)) *rig {
	t.Helper()
	region, err := umem.Open(umem.Config{Size: 2 << 20, Pages: umem.Ordinary})
	testenv.Must(t, err)
	book := region.NewBook("test")
	holder, err := book.NewHolder(umem.OwnerWorker, "test")
	testenv.Must(t, err)
	all := make([]umem.Frame, frames)
	if n := holder.Take(all); n != frames {
		t.Fatalf("%d frames", n)
	}
	r := &rig{region: region, free: umem.NewFreeList(all)}
	r.slow = &slow{Sink: discard.New(region, r.free), region: region, room: 1 << 30, got: make([]uint64, 0, 4096)}
	r.batch.Frames = make([]umem.Frame, 2*pipeline.Burst)
	m := &config.Feed{Lines: []config.FeedLine{{Name: "a", Address: group, Port: 7000}, {Name: "b", Address: group, Port: 7001}}, Gap: time.Millisecond, Hold: 16}
	for _, f := range change {
		f(m)
	}
	flow := config.NewFlowOf(config.KindNetworkAttach, "f")
	flow.Stages = []config.Stage{{Mold: m}}
	r.Sink, err = Open(&pipeline.Env{Region: region, Flow: flow}, r.free, r.slow, 0)
	testenv.Must(t, err)
	t.Cleanup(func() {
		back := make([]umem.Frame, r.free.Len())
		if !r.free.Pop(back) || len(back) != frames {
			t.Errorf("%d of %d frames came back", len(back), frames)
		}
		holder.Give(back)
		holder.Close()
		testenv.Check(t, book.Close())
		testenv.Check(t, region.Close())
	})
	return r
}

// arrive puts a packet of a line into a frame of the batch.
func (r *rig) arrive(port uint16, first uint64, count int) {
	var one [1]umem.Frame
	r.free.Pop(one[:])
	f := umem.Frame{Addr: one[0].Addr&^uint64(r.region.FrameSize()-1) + umem.PacketHeadroom, Len: 42 + 20}
	p := r.region.At(f.Addr, uint64(r.region.FrameSize()-umem.PacketHeadroom))
	copy(p, "\x01\x00\x5e\x01\x01\x01\x02\x00\x00\x00\x00\x01\x08\x00E\x00\x00\x00\x00\x00@\x00\x01\x11\x00\x00\x0a\x00\x00\x01\xef\x01\x01\x01\x00\x01")
	binary.BigEndian.PutUint16(p[36:], port)
	copy(p[42:], "SESSION   ")
	binary.BigEndian.PutUint64(p[52:], first)
	binary.BigEndian.PutUint16(p[60:], uint16(count))
	for n := first; n < first+uint64(count); n++ {
		length := 8 + int(byte(n))%40
		binary.BigEndian.PutUint16(p[f.Len:], uint16(length))
		binary.BigEndian.PutUint64(p[f.Len+2:], n)
		f.Len += 2 + uint32(length)
	}
	binary.BigEndian.PutUint16(p[38:], uint16(f.Len-34))
	binary.BigEndian.PutUint16(p[16:], uint16(f.Len-14))
	r.batch.Frames[r.batch.Len] = f
	r.batch.Len++
}

// TestBackPressure: while the sink behind is blocked, and when no frame is free, messages wait and none is lost or
// changed. Every frame comes back.
func TestBackPressure(t *testing.T) {
	r := newRig(t, 70)
	now := time.Now()
	next := uint64(1)
	r.arrive(7000, 1, 0) // a heartbeat: the session begins with message 1
	for round := 0; len(r.slow.got) < 3000; round++ {
		r.slow.room = round % 7
		r.Reap(now)
		if r.batch.Len == 0 {
			r.arrive(7000, next+3, 5) // behind a gap
			r.arrive(7001, next, 8)
			r.arrive(7001, next, 8)
			next += 8
		}
		r.Write(&r.batch, now)
		r.Flush(true, now)
		now = now.Add(time.Microsecond)
	}
	r.slow.room = 1 << 30
	for r.batch.Len > 0 || r.out.Len > 0 {
		r.Write(&r.batch, now)
		r.Flush(true, now)
	}
	for i, n := range r.slow.got {
		if n != uint64(i+1) {
			t.Fatalf("message %d is number %d", i+1, n)
		}
	}
	s := &status.Flow{CopiedBytes: map[string]uint64{}}
	if err := r.Observe(s); err != nil || r.slow.wrong > 0 || s.Feed.Lost > 0 || s.Feed.Messages != next-1 || r.slow.blocked == 0 && s.Feed.Lines[1].Duplicates == 0 {
		t.Errorf("%v: %d messages are wrong; %+v", err, r.slow.wrong, s.Feed)
	}
}

// TestBeginsAgain: a sender that counts from 1 again is passed on, when its packets have been kept for the time of a gap,
// and logged once. The worker wakes for that without a packet.
func TestBeginsAgain(t *testing.T) {
	r := newRig(t, 70, func(m *config.Feed) { m.Hold = 64 })
	var log strings.Builder
	r.log = slog.New(slog.NewTextHandler(&log, nil))
	now := time.Now()
	send := func() {
		for n := range uint64(20) {
			r.arrive(7000, 5*n+1, 5)
			r.arrive(7001, 5*n+1, 5)
			r.Write(&r.batch, now)
			r.Flush(true, now)
			r.Reap(now)
			now = now.Add(10 * time.Microsecond)
		}
	}
	send()
	now = now.Add(time.Second)
	if send(); len(r.slow.got) != 100 {
		t.Errorf("%d messages went out at once", len(r.slow.got))
	}
	at := r.Deadline(now)
	if at.Sub(now) > time.Millisecond {
		t.Errorf("the worker sleeps for %v", at.Sub(now))
	}
	r.Flush(true, at)
	for i, n := range r.slow.got {
		if n != uint64(i%100+1) {
			t.Fatalf("message %d is number %d", i, n)
		}
	}
	s := &status.Flow{CopiedBytes: map[string]uint64{}}
	if err := r.Observe(s); err != nil || len(r.slow.got) != 200 || s.Feed.Restarts != 1 || s.Feed.Sessions != 2 || s.Feed.Lost != 0 {
		t.Errorf("%v: %d messages, %+v", err, len(r.slow.got), s.Feed)
	}
	for range 2 {
		if waits, ends := r.Check(now); waits != nil || ends != nil {
			t.Error(waits, ends)
		}
	}
	if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "has restarted") || !strings.Contains(text, "session=SESSION sessions=2 restarts=1") {
		t.Errorf("it logs %s", text)
	}
}

// TestLongAnswer: an answer of the retransmission server that is longer than what fits a frame is refused, and the frames
// beside the message's stay as they are. One that just fits is taken.
func TestLongAnswer(t *testing.T) {
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	testenv.Must(t, err)
	defer server.Close()
	r := newRig(t, 70, func(m *config.Feed) {
		m.Server, m.Ask, m.Gap = server.LocalAddr().String(), time.Millisecond, time.Minute
	})
	defer r.server.close()
	now := time.Now()
	r.arrive(7000, 1, 1)
	r.arrive(7000, 3, 1)
	r.Write(&r.batch, now)
	r.Flush(true, now)
	r.Flush(true, now.Add(2*time.Millisecond)) // asks
	request := make([]byte, 64)
	n, from, err := server.ReadFromUDPAddrPort(request)
	if err != nil || n != feed.RequestLen {
		t.Fatalf("a request of %d bytes: %v", n, err)
	}
	most := int(r.region.FrameSize()) - umem.PacketHeadroom
	for _, length := range []int{most + 1, int(r.region.FrameSize()), most} {
		answer := make([]byte, length)
		copy(answer, request[:n])
		binary.BigEndian.PutUint16(answer[20:], uint16(length-22))
		binary.BigEndian.PutUint64(answer[22:], 2)
		if _, err := server.WriteToUDPAddrPort(answer, from); err != nil {
			t.Fatal(err)
		}
	}
	r.slow.long = uint32(most - 22)
	for until := time.Now().Add(5 * time.Second); len(r.slow.got) < 3 && time.Now().Before(until); time.Sleep(time.Millisecond) {
		r.Flush(true, now.Add(3*time.Millisecond))
		r.Reap(now)
	}
	s := &status.Flow{CopiedBytes: map[string]uint64{}}
	if err := r.Observe(s); err != nil || s.Feed.Lines[2].Refused["too_long"] != 2 || s.Feed.Lines[2].Wins != 1 || r.slow.wrong > 0 || !slices.Equal(r.slow.got, []uint64{1, 2, 3}) {
		t.Errorf("%v: %+v, got %v, %d wrong", err, s.Feed, r.slow.got, r.slow.wrong)
	}
}

// TestAllocatesNothing: a round with packets of both lines, a gap that is declared, and a packet of nobody does not
// allocate.
func TestAllocatesNothing(t *testing.T) {
	r := newRig(t, 300)
	now, next := time.Now(), uint64(1)
	round := func() {
		r.Reap(now)
		r.arrive(7000, next, 4)
		r.arrive(7001, next, 4)
		r.arrive(7000, next+5, 3) // a gap of one
		r.arrive(7002, 1, 1)
		r.Write(&r.batch, now)
		for range 3 {
			r.Flush(true, now)
			now = now.Add(2 * time.Millisecond)
		}
		next += 8
	}
	for range 50 {
		round()
	}
	if n := testing.AllocsPerRun(500, round); n != 0 {
		t.Errorf("a round allocates %v times", n)
	}
	s := &status.Flow{CopiedBytes: map[string]uint64{}}
	if err := r.Observe(s); err != nil || s.Feed.Lost != s.Feed.Gaps || s.Feed.Lost < 500 || s.Feed.Others != s.Feed.Lost || s.Feed.Messages != 7*s.Feed.Lost {
		t.Errorf("%v: %+v", err, s.Feed)
	}
	if !bytes.HasPrefix(fmt.Append(nil, r.Announce()...), []byte("lines")) {
		t.Errorf("it announces %v", r.Announce())
	}
}
