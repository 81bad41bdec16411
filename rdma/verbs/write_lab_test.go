//go:build lab && verbs && cgo

package verbs

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/umem/porttest"
)

// writeShape is what ports of WRITE with immediate are tested as.
type writeShape struct{ strict, register, events bool }

func (s writeShape) name() string {
	return fmt.Sprintf("strict=%v/register=%v/events=%v", s.strict, s.register, s.events)
}

const (
	writeSlots   = 32
	writeMessage = 4096 - landing
)

// TestWritePortContract: the port keeps the contract of ports, with windows and with
// registrations.
func TestWritePortContract(t *testing.T) {
	base := newPortBench(t)
	const of = "a port whose grants end with each message shows it, and the tests of registrations what is different with them"
	for _, s := range []writeShape{{events: true}, {strict: true, events: true}, {register: true}, {register: true, strict: true}} {
		t.Run(s.name(), func(t *testing.T) {
			if !s.strict || s.register {
				long(t, of)
			}
			for _, c := range porttest.Cases() {
				if c.Name == "Poll" && !s.events {
					continue // there is nothing to sleep on
				}
				if c.Name == "Allocations" && s.register && s.strict {
					continue // each message is a registration made and ended, which are Go objects
				}
				t.Run(c.Name, func(t *testing.T) {
					p := base.on(t)
					c.Check(t, func(testing.TB) *porttest.Link {
						return p.writeLink(s)
					})
				})
			}
		})
	}
}

// writeLink is two ports as the suite tests them.
func (p *portBench) writeLink(s writeShape) *porttest.Link {
	return p.link(func(l *porttest.Link) {
		before := p.worker.Book().Region().Snapshot().Of(umem.OwnerRDMA)
		l.Sender, l.Receiver = p.openWrites(s)
		l.Own = int(p.worker.Book().Region().Snapshot().Of(umem.OwnerRDMA) - before)
	})
}

// writeConfig makes what a port takes, with a queue pair that is not connected.
func (p *portBench) writeConfig(name string, s writeShape) rdma.WriteConfig {
	p.t.Helper()
	send, receive := rdma.WriteDepths(portDepth, writeSlots, writeSlots)
	c := rdma.WriteConfig{Name: name, Worker: p.worker, Domain: p.pd, Memory: p.memory, Message: writeMessage, Slots: writeSlots, PeerSlots: writeSlots,
		Landing: landing, Kept: writeSlots, Strict: s.strict, Register: s.register, Events: s.events,
		SendCQ: p.queue(send, s.events), ReceiveCQ: p.queue(receive, s.events)}
	q, err := p.pd.NewQueuePair(rdma.QueuePairConfig{Transport: rdma.RC, SendCQ: c.SendCQ, ReceiveCQ: c.ReceiveCQ,
		SendDepth: send, RecvDepth: receive, SendSGEs: 4, InlineBytes: 64})
	if err != nil {
		p.t.Fatal(err)
	}
	c.QueuePair = q
	return c
}

func (p *portBench) openWrite(c rdma.WriteConfig) *rdma.WritePort {
	p.t.Helper()
	port, err := rdma.OpenWritePort(c)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if err := port.Close(); err != nil {
			p.t.Error(err)
		}
	})
	return port
}

// openWrites makes two ports that are connected.
func (p *portBench) openWrites(s writeShape) (a, b *rdma.WritePort) {
	p.t.Helper()
	ca, cb := p.writeConfig("a", s), p.writeConfig("b", s)
	p.connectTo(ca.QueuePair, cb.QueuePair.QPN(), 0)
	p.connectTo(cb.QueuePair, ca.QueuePair.QPN(), 0)
	a, b = p.openWrite(ca), p.openWrite(cb)
	if a.Windows() == s.register {
		p.t.Fatalf("grants are windows: %v", a.Windows())
	}
	return a, b
}

// TestWritePort: what a port does that is no port's duty.
func TestWritePort(t *testing.T) {
	newPortBench(t).run(map[string]func(*portBench){"both ways": writeBothWays, "kept": writeKept, "no peer": writeNoPeer, "refused": writeRefused})
}

// writeBothWays: messages both ways at once, and what is counted.
func writeBothWays(p *portBench) {
	t := p.t
	a, b := p.openWrites(writeShape{strict: true})
	for range 20 {
		p.supply(a, 8)
		p.supply(b, 8)
		if n := p.worker.Book().Region().Snapshot().Of(umem.OwnerGranted); n < 8 {
			t.Fatalf("%d frames are granted", n)
		}
		p.mustSend(a, p.frames(8, 1000))
		p.mustSend(b, p.frames(8, 2000))
		p.passAll(a, b, 8, 1000)
		p.passAll(b, a, 8, 2000)
	}
	if s, g := a.Stats(); s.Sent != 160 || s.BytesSent != 160_000 || s.Received != 160 || s.BytesReceived != 320_000 ||
		s.Immediates != 160 || s.Refused != 0 || len(s.Failed) != 0 || g.Misses != 160 || g.Hits != 0 || g.Outstanding != 0 ||
		g.Making.Count != 160 || g.Revoking.Count != 160 || g.Failed != 0 {
		t.Errorf("%+v, %+v", s, g)
	}
}

// passAll takes what a sent to b.
func (p *portBench) passAll(a, b *rdma.WritePort, n int, length uint32) {
	p.t.Helper()
	got := p.received(a, b, n)
	for _, f := range got {
		if f.Len != length || f.Err() != nil {
			p.t.Errorf("%d bytes, %v", f.Len, f.Err())
		}
	}
	p.worker.Give(got)
	p.wantBack(a, "sent", n, nil)
}

// writeKept: grants of frames that go round are found again, and those of frames that do not
// come again end where there is no more room.
func writeKept(base *portBench) {
	t := base.t
	for _, s := range []writeShape{{}, {register: true}} {
		t.Run(s.name(), func(t *testing.T) {
			p := base.on(t)
			a, b := p.openWrites(s)
			for range 10 {
				p.supply(b, 8) // the pool gives the same frames again
				p.mustSend(a, p.frames(8, 100))
				p.passAll(a, b, 8, 100)
			}
			_, g := b.Stats()
			if g.Hits == 0 || g.Hits+g.Misses != 80 || g.Evictions != 0 {
				t.Errorf("%+v", g)
			}
			var away []umem.Frame
			for range 12 { // 96 others, with 64 places
				away = append(away, p.frames(8, 0)...)
				if n := b.Supply(p.frames(8, 0)); n != 8 {
					t.Fatalf("Supply took %d frames", n)
				}
				p.mustSend(a, p.frames(8, 100))
				away = append(away, p.received(a, b, 8)...)
				p.wantBack(a, "sent", 8, nil)
			}
			if _, g = b.Stats(); g.Evictions == 0 || g.Failed != 0 {
				t.Errorf("%+v", g)
			}
			p.worker.Give(away)
		})
	}
}

// writeNoPeer: the peer dies, with credits of both ends outstanding and messages under
// way.
func writeNoPeer(base *portBench) {
	t := base.t
	for _, s := range []writeShape{{}, {strict: true}, {register: true}} {
		t.Run(s.name(), func(t *testing.T) {
			p := base.on(t)
			a, b := p.openWrites(s)
			p.supply(a, 16)
			p.supply(b, 4)
			p.mustSend(a, p.frames(2, 100))
			p.passAll(a, b, 2, 100) // b's credits have come
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			if n := a.Send(p.frames(6, 100)); n != 6 { // 2 for credits, 4 for which there are none
				t.Fatalf("Send took %d", n)
			}
			_ = a.Kick()
			sent := take(t, "the frames sent", 6, a, a.Reap)
			wantErr(t, "the first", sent[:1], unix.ETIMEDOUT)
			wantErr(t, "the others", sent[1:], unix.ECANCELED)
			empty := take(t, "the frames supplied", 16, a, a.Recv)
			wantErr(t, "supplied", empty, unix.ECANCELED)
			p.worker.Give(append(sent, empty...))
			p.wantOver(a, rdma.RetryExceeded)
		})
	}
}

// wantOver wants a port whose connection is over, and says why.
func (p *portBench) wantOver(a *rdma.WritePort, why error) {
	p.t.Helper()
	if err := a.Kick(); !errors.Is(err, why) || !errors.Is(a.Cause(), why) {
		p.t.Errorf("Kick says %v, the cause is %v: want %v", err, a.Cause(), why)
	}
	fs := p.frames(3, 10)
	if n := a.Supply(fs[:1]); n != 0 {
		p.t.Errorf("Supply took %d frames", n)
	}
	if n := a.Send(fs[1:]); n != 2 {
		p.t.Errorf("Send took %d frames", n)
	}
	p.wantBack(a, "sent", 2, unix.ENOTCONN)
	p.worker.Give(fs[:1])
}

// writeRefused: a port that does not open closes what it was given.
func writeRefused(p *portBench) {
	t := p.t
	for name, spoil := range map[string]func(*rdma.WriteConfig){
		"no worker":    func(c *rdma.WriteConfig) { c.Worker = nil },
		"no domain":    func(c *rdma.WriteConfig) { c.Domain = nil },
		"no slots":     func(c *rdma.WriteConfig) { c.Slots = 0 },
		"more slots":   func(c *rdma.WriteConfig) { c.PeerSlots += 200 },
		"message":      func(c *rdma.WriteConfig) { c.Message = 1 << 30 },
		"no message":   func(c *rdma.WriteConfig) { c.Message = 0 },
		"events":       func(c *rdma.WriteConfig) { c.Events = true },
		"more windows": func(c *rdma.WriteConfig) { c.Kept = 1 << 24 },
		"empty pool":   func(*rdma.WriteConfig) {},
	} {
		t.Run(name, func(t *testing.T) {
			of := p.on(t)
			c := of.writeConfig("refused", writeShape{})
			spoil(&c)
			if name == "empty pool" {
				all := of.frames(int(p.region.Frames()), 0)
				defer of.worker.Give(all)
			}
			port, err := rdma.OpenWritePort(c)
			if err == nil {
				port.Close()
				t.Fatal("it was opened")
			}
			t.Log(err)
		})
	}
}

// TestPortsOfExtents: a message of an extent goes into an extent, by both kinds of ports.
func TestPortsOfExtents(t *testing.T) {
	p := newPortBench(t)
	p.region = made(t, func() (*umem.Region, error) { return umem.Open(umem.Config{Size: 8 << 20, Extents: 4}) })
	p.memory = p.register(rdma.LocalWrite | rdma.Remote | rdma.BindWindows)
	t.Run("message", func(t *testing.T) {
		p := p.on(t)
		s := portShape{transport: rdma.RC}
		ca, cb := p.config("a", s), p.config("b", s)
		ca.QueuePairs[0].Message = 1<<20 - landing
		p.join(&ca, &cb, s)
		p.extents(p.openPort(ca), p.openPort(cb))
	})
	t.Run("write", func(t *testing.T) {
		p := p.on(t)
		ca, cb := p.writeConfig("a", writeShape{register: true}), p.writeConfig("b", writeShape{register: true})
		ca.Message, cb.Message = 1<<20-landing, 1<<20-landing
		p.connectTo(ca.QueuePair, cb.QueuePair.QPN(), 0)
		p.connectTo(cb.QueuePair, ca.QueuePair.QPN(), 0)
		a, b := p.openWrite(ca), p.openWrite(cb)
		p.extents(a, b)
		p.supply(b, 2) // frames, which no message fits into
		fs := take(t, "the frames", 2, b, b.Recv)
		wantErr(t, "a frame", fs, unix.EMSGSIZE)
		p.worker.Give(fs)
	})
}

// extents passes two extents full from a to b.
func (p *portBench) extents(a, b umem.Port) {
	p.t.Helper()
	fs := make([]umem.Frame, 4)
	if n := p.worker.TakeExtents(fs); n != 4 || b.Supply(fs[:2]) != 2 {
		p.t.Fatalf("%d extents, or they were not taken", n)
	}
	full := fs[2:]
	for i := range full {
		full[i].Addr, full[i].Len = full[i].Addr+landing, 1<<20-landing
		p.fill(full[i].Addr, full[i].Len)
	}
	p.mustSend(a, full)
	for i, f := range p.received(a, b, 2) {
		if !bytes.Equal(p.region.Bytes(f), p.region.Bytes(full[i])) {
			p.t.Errorf("extent %d is not what was sent", i)
		}
		p.worker.Give([]umem.Frame{f})
	}
	p.wantBack(a, "sent", 2, nil)
}

// received takes messages that a sent to b.
func (p *portBench) received(a, b umem.Port, n int) (got []umem.Frame) {
	p.t.Helper()
	fs := make([]umem.Frame, n)
	testenv.Wait(p.t, 20*time.Second, "messages", func() bool {
		if err := errors.Join(a.Kick(), b.Kick()); err != nil {
			p.t.Fatal(err)
		}
		got = append(got, fs[:b.Recv(fs[:n-len(got)])]...)
		return len(got) == n
	})
	return got
}
