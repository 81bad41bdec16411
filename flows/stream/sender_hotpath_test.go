package stream

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// testSenderAllocations: sending, progress and completed messages do not allocate.
func testSenderAllocations(t *testing.T, g *rig) {
	k := g.far.newTaker(receiverConfig(), 64)
	k.on(func() { k.tokens = make([]uint64, 0, 1<<20) })
	p := g.near.newSource(senderConfig(k.address))
	p.stats("a connection", connectedNow)
	p.on(func() { p.rounds = nil }) // only round polls the sender, on its worker's thread
	text := payload(1, 300)
	message := make([]umem.Frame, 3)
	for i := range message {
		message[i] = umem.Frame{Addr: p.frames[i].Addr, Len: 100}
		copy(p.region.Bytes(message[i]), text[100*i:])
	}
	sum, token, done := protocol.Checksum(text), uint64(1), 0
	var results [64]Result
	round := func() {
		for range 8 {
			if p.s.Send(message, 300, sum, firstStamp+token, token) {
				token += 256 // the payload repeats after 256 tokens
			}
		}
		testenv.Check(t, p.s.Kick())
		testenv.Check(t, p.s.Poll(time.Now()))
		done += p.s.Done(results[:])
	}
	for range 10 {
		p.on(func() {
			if n := testenv.AllocsPerRun(t, 20, round); n > 0 {
				t.Errorf("a round allocates %v times", n)
			}
		})
		testenv.Wait(t, 20*time.Second, "acknowledgements", func() (all bool) {
			p.on(func() {
				testenv.Check(t, p.s.Poll(time.Now()))
				done += p.s.Done(results[:])
				all = p.s.Queued() == 0
			})
			return all
		})
	}
	if s := p.s.Stats(); done < 100 || s.Acknowledged != uint64(done) {
		t.Errorf("%d messages are told of, and %d acknowledged", done, s.Acknowledged)
	}
}

// testSenderDescriptor: the descriptor is readable whenever the sender has work, and only then.
func testSenderDescriptor(t *testing.T, g *rig) {
	k := g.far.newTaker(receiverConfig(), 64)
	p := g.near.newSource(senderConfig(k.address))
	p.stats("a connection", connectedNow)
	p.on(func() { p.rounds = nil }) // the test polls the sender itself
	ready := func(limit time.Duration) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.s.FD()), Events: unix.POLLIN}}, int(limit.Milliseconds()))
		for err == unix.EINTR {
			n, err = unix.Poll([]unix.PollFd{{Fd: int32(p.s.FD()), Events: unix.POLLIN}}, int(limit.Milliseconds()))
		}
		return n == 1
	}
	for i := range 50 {
		p.want += uint64(1 + i%3)
		p.round()
		for p.acked < p.want {
			if !ready(testenv.Within(20 * time.Second)) {
				t.Fatalf("message %d is acknowledged without a word: %+v", p.want, p.s.Stats())
			}
			p.round()
		}
	}
	testenv.Wait(t, 20*time.Second, "the descriptor to be quiet", func() bool { p.round(); return !ready(0) })
}

// BenchmarkSend sends messages of 1 KiB to a receiver on its own thread, which checks and
// acknowledges them.
func BenchmarkSend(b *testing.B) {
	g := newRig(b)
	c := receiverConfig()
	c.Message, c.Window, c.Peers, c.Events = 2048, 256, 1, false
	k := g.far.newTaker(c, 512)
	s := senderConfig(k.address)
	s.Message, s.Depth, s.Events = 2048, 512, false
	p := g.near.newSource(s)
	p.stats("a connection", connectedNow)
	k.on(func() { k.rounds = []func() bool{k.swallow} })
	p.on(func() { p.rounds = nil })
	message := []umem.Frame{{Addr: p.frames[0].Addr, Len: 1024}}
	sum := protocol.Checksum(p.region.Bytes(message[0]))
	var results [64]Result
	b.ReportAllocs()
	b.ResetTimer()
	for sent, done := 0, 0; done < b.N; {
		for range 64 {
			if sent == b.N || !p.s.Send(message, 1024, sum, firstStamp, uint64(sent)) {
				break
			}
			sent++
		}
		testenv.Must(b, p.s.Poll(time.Now()))
		done += p.s.Done(results[:])
	}
	b.StopTimer()
	b.SetBytes(1024)
	if s := p.s.Stats(); s.Latency != nil {
		b.ReportMetric(float64(s.Latency.P50), "p50-ns")
	}
}

// swallow receives messages and acknowledges them. It never sleeps.
func (k *taker) swallow() bool {
	n := k.r.Recv(k.buf[:])
	for _, f := range k.buf[:n] {
		d, _ := protocol.ParseDataHeader(k.region.Bytes(f))
		k.r.Acknowledge(k.region.Side(f).Queue, d.Sequence, d.Sequence)
	}
	k.r.Supply(k.buf[:n])
	if err := k.r.Poll(time.Now()); err != nil {
		k.wrong = err.Error()
	}
	return true
}
