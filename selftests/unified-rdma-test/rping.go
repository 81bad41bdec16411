package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/umem"
)

// rping of rdma-core (librdmacm/examples/rping.c): each side is told where it may read or write, in messages of 16
// bytes. For each ping the client sends where its data is, and the server reads it; when it has, it sends a message
// whose contents do not matter. Then the client sends where it wants the data, the server writes it there, and sends
// such a message again.

// What rping takes for granted unless told otherwise, and its limits.
const (
	rpingPort  = 7174
	rpingSize  = 64 // bytes of a ping
	rpingLeast = 28 // and at least: a line of text with a number fits
	rpingMost  = 64<<10 - 1
	infoSize   = 16 // bytes of a message
)

// rpingInfo is memory of one side that the other may reach.
type rpingInfo struct {
	Addr uint64
	RKey uint32
	Size uint32
}

// fillRping sets rping's fixed settings. The client chooses the size and the number of pings.
func (o *options) fillRping(given map[string]bool) error {
	o.Test, o.Op, o.Depth, o.Inline, o.Manager = verifyTest, "write", 1, 0, true
	if !given["port"] {
		o.port = rpingPort
	}
	if !given["size"] {
		o.Size = rpingSize
	}
	if !given["n"] {
		o.Count = 100
	}
	if o.Size < rpingLeast || o.Size > rpingMost {
		return fmt.Errorf("-size %d: rping has pings of %d to %d bytes", o.Size, rpingLeast, rpingMost)
	}
	return o.job.check()
}

// pinger is either side of rping. Its memory is three extents: for the ping, for the ping that
// comes back, and for messages.
type pinger struct {
	link
	out                io.Writer
	source, sink, text umem.Frame
}

// rping is either side of rping.
func (o *options) rping(ctx context.Context, out io.Writer) (err error) {
	peer := netip.Addr{}
	if !o.server() {
		if peer, err = resolve(ctx, o.where); err != nil {
			return err
		}
		peer = peer.WithZone("") // rdma_cm takes the device's interface
	}
	s, err := open(*o, peer, room{extents: 3, size: o.most()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.cleanup.Close()) }()
	p := &pinger{out: out}
	p.session, p.job, p.ctx = s, o.job, ctx
	if err := p.make(); err != nil {
		return err
	}
	if err := s.openManager(); err != nil {
		return err
	}
	if o.server() {
		return p.serve()
	}
	return p.ask(netip.AddrPortFrom(peer, uint16(o.port)))
}

// most returns the longest ping. The client knows the length of its own.
func (o *options) most() uint64 {
	if o.server() {
		return rpingMost
	}
	return o.Size
}

// make takes the memory and makes a queue pair.
func (p *pinger) make() (err error) {
	frames := make([]umem.Frame, 3)
	if n := p.worker.TakeExtents(frames); n < len(frames) {
		return errors.New("the region has no room for the pings")
	}
	p.source, p.sink, p.text = frames[0], frames[1], frames[2]
	for _, q := range []*rdma.CompletionQueue{&p.sent, &p.came} {
		if *q, err = keep(p.session, p.device.NewCompletionQueue, rdma.CompletionQueueConfig{Depth: 3}); err != nil {
			return err
		}
	}
	p.qp, err = keep(p.session, p.domain.NewQueuePair, rdma.QueuePairConfig{Transport: rdma.RC, SendCQ: p.sent, ReceiveCQ: p.came, SendDepth: 2, RecvDepth: 2})
	p.sends, p.recvs, p.sges, p.polled = make([]rdma.SendRequest, 1), make([]rdma.ReceiveRequest, 1), make([]rdma.SGE, 1), make([]rdma.WorkCompletion, 4)
	return err
}

// ask is the client's side.
func (p *pinger) ask(to netip.AddrPort) error {
	source, err := p.grant(p.source, rdma.RemoteRead)
	if err != nil {
		return err
	}
	sink, err := p.grant(p.sink, rdma.RemoteWrite)
	if err != nil {
		return err
	}
	if err := p.prepare(rdma.RemoteRead | rdma.RemoteWrite); err != nil {
		return err
	}
	conn, err := p.join(p.ctx, to, p.mine())
	if err != nil {
		return err
	}
	p.through = conn
	begin := time.Now()
	for n := range p.Count {
		if err := p.ping(n, source, sink); err != nil {
			return fmt.Errorf("ping %d: %w", n, err)
		}
	}
	d := time.Since(begin)
	fmt.Fprintf(p.out, "%d pings of %d bytes, every byte as it should be, %.2f usec each\n", p.Count, p.Size, float64(d.Microseconds())/float64(p.Count))
	return nil
}

// prepare brings the queue pair to INIT and posts the first receive. The route to the peer is not
// known yet.
func (p *pinger) prepare(access rdma.Access) error {
	a := rdma.Attributes{State: rdma.Init, Port: p.settings.Port, Access: access}
	if err := p.qp.Modify(a, rdma.MaskState|rdma.MaskPKeyIndex|rdma.MaskPort|rdma.MaskAccess); err != nil {
		return err
	}
	return p.expect()
}

func (p *pinger) mine() cm.End {
	e := cm.Defaults(p.qp)
	e.Timeout = p.settings.Timeout
	return e
}

// grant lets the peer access the memory of a ping.
func (p *pinger) grant(f umem.Frame, a rdma.Access) (rpingInfo, error) {
	m, err := keep(p.session, func(a rdma.Access) (rdma.MemoryRegion, error) {
		return p.domain.RegisterPart(p.region, f.Addr, p.Size, a)
	}, rdma.LocalWrite|a)
	if err != nil {
		return rpingInfo{}, err
	}
	return rpingInfo{Addr: m.Addr(), RKey: m.RKey(), Size: uint32(p.Size)}, nil
}

// ping makes the server read a ping and write it back.
func (p *pinger) ping(n int, source, sink rpingInfo) error {
	sent, back := p.region.At(p.source.Addr, p.Size), p.region.At(p.sink.Addr, p.Size)
	fillPing(sent, n)
	clear(back)
	for _, i := range []rpingInfo{source, sink} {
		if err := p.say(i); err != nil {
			return err
		}
		if _, err := p.listen(); err != nil {
			return err
		}
	}
	if !bytes.Equal(sent, back) {
		return errors.New("other bytes came back")
	}
	return nil
}

// textAt returns the address of a message: the one to send, or after it the received one.
func (p *pinger) textAt(came bool) uint64 {
	if came {
		return p.text.Addr + 64
	}
	return p.text.Addr
}

func (p *pinger) element(addr uint64, n uint32) rdma.SGE {
	return rdma.SGE{Addr: p.memory.Addr() + addr, Length: n, LKey: p.memory.LKey()}
}

func (p *pinger) expect() error {
	p.recvs[0], p.sges[0] = rdma.ReceiveRequest{SGEs: 1}, p.element(p.textAt(true), infoSize)
	if n, err := p.qp.PostReceive(p.recvs, p.sges); n < 1 {
		return fmt.Errorf("post a receive: %w", err)
	}
	return nil
}

// listen waits for a message and posts the receive for the next.
func (p *pinger) listen() ([]byte, error) {
	cs, err := p.await(p.came)
	if err != nil {
		return nil, err
	}
	text := bytes.Clone(p.region.At(p.textAt(true), infoSize))
	return text[:min(cs[0].Length, infoSize)], p.expect()
}

func (p *pinger) say(i rpingInfo) error {
	i.append(p.region.At(p.textAt(false), infoSize)[:0])
	return p.do(rdma.SendRequest{Op: rdma.Send, Flags: rdma.Signaled, SGEs: 1}, p.element(p.textAt(false), infoSize))
}

// do posts a request and waits until it is complete.
func (p *pinger) do(r rdma.SendRequest, s rdma.SGE) error {
	if err := p.send(r, s); err != nil {
		return err
	}
	_, err := p.await(p.sent)
	return err
}

// serve is the server's side.
func (p *pinger) serve() error {
	l, err := p.listenAnywhere()
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "waiting for rping on port %d of rdma_cm\n", p.options.port)
	r, err := l.Accept(p.ctx)
	if err != nil {
		return err
	}
	if err := p.welcome(r); err != nil {
		return errors.Join(err, r.Close())
	}
	return p.answerAll()
}

// welcome accepts a client.
func (p *pinger) welcome(r cm.Request) error {
	if err := p.sameDevice(r.Address()); err != nil {
		return err
	}
	if err := p.prepare(0); err != nil {
		return err
	}
	conn, err := p.accept(p.ctx, r, p.mine())
	p.through = conn
	return err
}

// answerAll answers pings until the client leaves.
func (p *pinger) answerAll() error {
	for n := 0; ; n++ {
		err := p.turn(rdma.Read)
		if errors.Is(p.over(), cm.ErrDisconnected) && n > 0 && err != nil {
			fmt.Fprintf(p.out, "%d pings\ndone\n", n)
			return nil
		}
		if err == nil {
			err = p.turn(rdma.Write)
		}
		if err != nil {
			return fmt.Errorf("ping %d: %w", n, err)
		}
	}
}

// turn receives a message, performs the read or write that it requests, and confirms it.
func (p *pinger) turn(op rdma.Op) error {
	text, err := p.listen()
	if err != nil {
		return err
	}
	i, err := decodeInfo(text, rpingMost)
	if err != nil {
		return err
	}
	request := rdma.SendRequest{Op: op, Flags: rdma.Signaled, SGEs: 1, RemoteAddr: i.Addr, RKey: i.RKey}
	if err := p.do(request, p.element(p.source.Addr, i.Size)); err != nil {
		return err
	}
	return p.say(rpingInfo{})
}

// append appends it as it is sent.
func (i rpingInfo) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, i.Addr)
	b = binary.BigEndian.AppendUint32(b, i.RKey)
	return binary.BigEndian.AppendUint32(b, i.Size)
}

// decodeInfo reads a message, and refuses what is no memory or more than there is room for.
func decodeInfo(b []byte, room uint64) (rpingInfo, error) {
	if len(b) != infoSize {
		return rpingInfo{}, fmt.Errorf("a message of %d bytes is none of rping's, which have %d", len(b), infoSize)
	}
	i := rpingInfo{Addr: binary.BigEndian.Uint64(b), RKey: binary.BigEndian.Uint32(b[8:]), Size: binary.BigEndian.Uint32(b[12:])}
	switch {
	case i.Size == 0 || uint64(i.Size) > room:
		return i, fmt.Errorf("a ping of %d bytes: it must have 1 to %d", i.Size, room)
	case i.Addr > math.MaxUint64-uint64(i.Size):
		return i, fmt.Errorf("a ping of %d bytes from %#x on is beyond all memory", i.Size, i.Addr)
	}
	return i, nil
}

// fillPing writes what ping number n has: a line of text, then letters from one on that is another each time. The
// last byte is zero, as that of a C string.
func fillPing(b []byte, n int) {
	const first, last = 'A', 'z'
	head := copy(b, fmt.Sprintf("rdma-ping-%d: ", n))
	c := first + n%(last-first+1)
	for i := head; i < len(b); i++ {
		b[i] = byte(c)
		if c++; c > last {
			c = first
		}
	}
	if len(b) > 0 {
		b[len(b)-1] = 0
	}
}
