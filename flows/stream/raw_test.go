package stream

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// raw is a peer of a receiver that sends whatever the test wants. It belongs to the test's
// goroutine.
type raw struct {
	*side
	session  uint64
	next     uint64            // sequence of the next message
	limit    uint64            // from the receiver's last progress message
	credits  []protocol.Credit // for the next messages: where to write them
	granted  uint64            // sequence of the next credit
	acked    uint64
	pair     rdma.QueuePair
	sent     rdma.CompletionQueue
	came     rdma.CompletionQueue
	conn     *connect.Conn
	remote   protocol.Hello
	frames   []umem.Frame // rawSends for sends, of rawSendBytes each, and one for progress messages
	posted   int
	under    int // sends without a completion
	broken   rdma.Status
	textDone chan string // the last text that the receiver sent over TCP
}

const (
	rawSends    = 16
	rawReceives = 16 // of a frame
)

// hello returns a valid hello.
func hello(session uint64) protocol.Hello {
	return protocol.Hello{Role: protocol.RoleAppend, Flow: "log", Message: protocol.HeaderLen, Session: session, Next: 1}
}

// dial connects a raw peer.
func (s *side) dial(address string, h protocol.Hello) *raw {
	s.Helper()
	p, err := s.tryDial(address, h, connect.Config{})
	testenv.Must(s, err)
	return p
}

// tryDial is dial for a peer that the receiver may refuse.
func (s *side) tryDial(address string, h protocol.Hello, c connect.Config) (*raw, error) {
	s.Helper()
	p := &raw{side: s, session: h.Session, textDone: make(chan string, 1)}
	p.prepare()
	if err := p.connect(address, h, c); err != nil {
		return nil, err
	}
	go p.listen()
	s.Cleanup(p.close)
	var err error
	p.remote, err = protocol.ParseHello(p.conn.Remote().Hello)
	s.must(err)
	p.next, p.granted, p.limit = p.remote.Next, p.remote.Next, p.remote.Next-1+uint64(p.remote.Window)
	return p, nil
}

// prepare makes the queue pair and posts receives. The queue pair is closed at the end of the test.
func (p *raw) prepare() {
	p.Helper()
	book := p.region.NewBook("raw peer")
	hands, err := book.NewHolder(umem.OwnerWorker, "raw peer")
	p.must(err)
	p.frames = make([]umem.Frame, 2*rawSends+1)
	if hands.Take(p.frames) < len(p.frames) {
		p.Fatal("the pool has no frames for a raw peer")
	}
	p.Cleanup(func() { hands.Give(p.frames); p.must(book.Close()) })
	for _, q := range []*rdma.CompletionQueue{&p.sent, &p.came} {
		*q, err = p.at.Device.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: 64})
		p.must(err)
		p.Cleanup(func() { p.must((*q).Close()) })
	}
	p.pair, err = p.at.Domain.NewQueuePair(rdma.QueuePairConfig{Transport: rdma.RC, SendCQ: p.sent, ReceiveCQ: p.came, SendDepth: rawSends, RecvDepth: rawReceives,
		SendSGEs: 2, RecvSGEs: 1})
	p.must(err)
	p.Cleanup(func() { p.must(p.pair.Close()) })
}

func (p *raw) connect(address string, h protocol.Hello, c connect.Config) (err error) {
	p.Helper()
	e := connect.End{Queue: p.pair}
	e.Settings, err = p.at.Settings(netip.Addr{}, p.ns.IP)
	p.must(err)
	e.Parameters, err = connect.Prepare(p.at.Device, p.pair, e.Settings)
	p.must(err)
	for n := range rawReceives {
		p.expect(uint64(n))
	}
	e.Hello, err = h.Append(nil)
	p.must(err)
	p.ns.Do(p, func() { p.conn, err = connect.Dial(context.Background(), address, e, c) })
	return err
}

// landing returns the memory of a receive for progress messages.
func (p *raw) landing(n uint64) umem.Frame {
	return umem.Frame{Addr: p.frames[2*rawSends].Addr + n*protocol.MaxGrantLen, Len: protocol.MaxGrantLen}
}

func (p *raw) element(f umem.Frame) rdma.SGE {
	return rdma.SGE{Addr: p.at.Memory.Addr() + f.Addr, Length: f.Len, LKey: p.at.Memory.LKey()}
}

func (p *raw) expect(n uint64) {
	p.Helper()
	if got, err := p.pair.PostReceive([]rdma.ReceiveRequest{{ID: n, SGEs: 1}}, []rdma.SGE{p.element(p.landing(n))}); got != 1 {
		p.Fatal(err)
	}
}

// listen waits for the end of the TCP connection.
func (p *raw) listen() {
	text := ""
	for {
		b, err := p.conn.Receive()
		if err != nil {
			p.textDone <- text
			return
		}
		text = string(b)
	}
}

func (p *raw) close() {
	p.Helper()
	if err := p.conn.Close(); err != nil && !errors.Is(err, io.EOF) {
		p.Error(err)
	}
	<-p.textDone
}

// message returns the bytes of a message.
func (p *raw) message(sequence uint64, payload []byte) []byte {
	b := make([]byte, protocol.HeaderLen, protocol.HeaderLen+len(payload))
	protocol.PutData(b, &protocol.Data{Sequence: sequence, Session: p.session, Length: uint32(len(payload)), Checksum: protocol.Checksum(payload)})
	return append(b, payload...)
}

// post sends b, which takes at most two frames. It waits while the queue is full.
func (p *raw) post(b []byte) {
	p.Helper()
	p.request(b, rdma.SendRequest{Op: rdma.Send})
}

// request posts a work request for b. It waits while the queue is full.
func (p *raw) request(b []byte, r rdma.SendRequest) {
	p.Helper()
	p.await("room to send", func() bool { return p.under < rawSends })
	p.start(b, r)
}

// start posts a work request for b. The queue must have room. It does not poll for completions.
func (p *raw) start(b []byte, r rdma.SendRequest) {
	p.Helper()
	first := umem.Frame{Addr: p.frames[2*(p.posted%rawSends)].Addr}
	second := umem.Frame{Addr: p.frames[2*(p.posted%rawSends)+1].Addr}
	p.posted++
	first.Len = uint32(copy(p.region.At(first.Addr, uint64(p.region.FrameSize())), b))
	second.Len = uint32(copy(p.region.At(second.Addr, uint64(p.region.FrameSize())), b[first.Len:]))
	sges := []rdma.SGE{p.element(first), p.element(second)}
	r.Flags, r.SGEs = rdma.Signaled, 2
	if n, err := p.pair.PostSend([]rdma.SendRequest{r}, sges); n != 1 {
		p.Fatal(err)
	}
	p.under++
}

// send sends the next count messages with payloads of size bytes, as the limit allows.
func (p *raw) send(count, size int) {
	p.Helper()
	for range count {
		p.await("credit", func() bool { return p.next <= p.limit })
		if message := p.message(p.next, payload(p.next, size)); p.remote.Capabilities&protocol.CapabilityWrite == 0 {
			p.post(message)
		} else {
			p.write(message, p.credit(), rdma.WriteImmediate)
		}
		p.next++
	}
}

// payload returns the payload of a message.
func payload(sequence uint64, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(sequence) + byte(i*7)
	}
	return b
}

// poll processes completions. It returns the last progress message if that is a final message.
func (p *raw) poll() (last protocol.Progress) {
	p.Helper()
	var done [32]rdma.WorkCompletion
	n, err := p.sent.Poll(done[:])
	p.must(err)
	p.under -= n
	for i := range done[:n] {
		if p.broken == rdma.Success {
			p.broken = done[i].Status
		}
	}
	n, err = p.came.Poll(done[:])
	p.must(err)
	for _, c := range done[:n] {
		if c.Status != rdma.Success {
			continue
		}
		g, reason := p.progress(p.region.Bytes(p.landing(c.ID))[:c.Length])
		if reason != protocol.None || g.Session != p.session || g.Sequence < p.acked || g.Limit < p.limit && g.Status == protocol.None {
			p.Fatalf("progress %+v after acknowledgement %d and limit %d: %v", g, p.acked, p.limit, reason)
		}
		p.acked, p.limit = g.Sequence, max(p.limit, g.Limit)
		if g.Status != protocol.None {
			last = g
		}
		p.expect(c.ID)
	}
	return last
}

// await waits until so returns true, which progress messages can cause. If the receiver ends the
// connection, the test fails with the receiver's reason.
func (p *raw) await(what string, so func() bool) {
	p.Helper()
	testenv.Wait(p, 20*time.Second, what, func() bool { p.poll(); return so() || p.heard() })
	for end := time.Now().Add(testenv.Within(time.Second)); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if so() {
			return
		}
		p.poll() // the end may have brought messages, or flushed them
	}
	text := <-p.textDone
	p.textDone <- text
	p.Fatalf("session %d waits for %s, and its connection has ended: it hears %q, and its queue pair has met %v", p.session, what, text, p.broken)
}

// awaitAcked waits until the receiver has acknowledged every sent message.
func (p *raw) awaitAcked() {
	p.Helper()
	p.await("acknowledgements", func() bool { return p.acked == p.next-1 })
}

// ended waits until the receiver has ended the connection. It returns the receiver's reason: the
// status of the final message, and the text from the TCP connection.
func (p *raw) ended() (status protocol.Reason, text string) {
	p.Helper()
	testenv.Wait(p, 20*time.Second, "the receiver to end the connection", func() bool {
		if g := p.poll(); g.Status != protocol.None {
			status = g.Status
		}
		return p.heard()
	})
	text = <-p.textDone
	p.textDone <- text
	return status, text
}

// heard reports whether the TCP connection has ended.
func (p *raw) heard() bool { return len(p.textDone) > 0 }
