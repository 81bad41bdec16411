package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/unifiedd/unifiedd/selftests/harness"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// tester tests the life of an interface on the region, step by step. It takes only packets of this
// program from the host.
type tester struct {
	options options
	session *session
	idle    []umem.Frame // frames to send out of
	echoes  int
}

// test runs the steps until one fails, since each depends on those before it.
func test(ctx context.Context, o options, out io.Writer) error {
	t := &tester{options: o, session: &session{options: o}}
	steps := t.steps()
	return harness.SelfTest(ctx, out, o.json, o.iface, len(steps), steps, harness.Step{Name: "close", Do: func() (string, error) {
		return "everything is closed", t.session.cleanup.Close()
	}})
}

func (t *tester) steps() []harness.Step {
	return []harness.Step{
		{Name: "interface", Do: t.findInterface}, {Name: "querier", Do: t.findQuerier}, {Name: "region", Do: t.makeRegion}, {Name: "sockets", Do: t.bind},
		{Name: "receive", Do: t.receive}, {Name: "send", Do: t.send}, {Name: "echo", Do: t.listen}, {Name: "filter", Do: t.exchange},
		{Name: "accounts", Do: t.balance}, {Name: "reopen", Do: t.reopen}, {Name: "give back", Do: t.giveBack},
	}
}

func (t *tester) findInterface() (string, error) {
	if _, err := t.session.look(); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, MTU %d", address(t.session.mac).text(), t.session.mtu), nil
}

func (t *tester) makeRegion() (string, error) {
	queues, err := t.session.look()
	if err == nil {
		err = t.session.openRegion(len(queues))
	}
	if err != nil {
		return "", err
	}
	r := t.session.region
	return fmt.Sprintf("%d frames of %d bytes on %s", r.Frames(), r.FrameSize(), r.Pages()), nil
}

func (t *tester) bind() (string, error) {
	queues, err := t.session.look()
	if err == nil {
		err = t.session.openInterface(queues)
	}
	if err == nil {
		err = t.session.iface.Check()
	}
	if err != nil {
		return "", err
	}
	g := t.session.granted()
	return fmt.Sprintf("%d queues bound, %d left to the host, program in %s mode; %s; %s",
		len(g.Queues), len(g.Unbound), g.Program, g.copying(), g.fits()), nil
}

// receive supplies frames to the ports and starts to take packets of this program.
func (t *tester) receive() (string, error) {
	s := t.session
	t.idle = make([]umem.Frame, batch)
	t.idle = t.idle[:s.hands[0].holder.Take(t.idle)]
	for i, p := range s.iface.Ports() {
		if err := supply(p, s.hands[i%len(s.hands)], s.share()/2); err != nil {
			return "", err
		}
		if err := p.Kick(); err != nil {
			return "", err
		}
	}
	return "started, for packets of this program only", s.iface.Start()
}

// send sends a batch and waits until the kernel has completed it.
func (t *tester) send() (string, error) {
	p, n := t.session.iface.Ports()[0], len(t.idle)
	for i := range t.idle {
		t.idle[i].Len = uint32(t.options.size)
		b := t.session.region.Bytes(t.idle[i])
		compose(b, t.options.to, t.session.mac, uint16(i))
		number(b, uint64(i), 0)
	}
	if took := p.Send(t.idle); took != n {
		return "", fmt.Errorf("send: the port took %d of %d packets", took, n)
	}
	refused, err := t.sendAndReap(p)
	if err != nil {
		return "", err
	}
	if back := len(t.idle); back < n || refused > 0 {
		return "", fmt.Errorf("send: of %d packets the kernel gave back %d, %d as refused (is the link up? see: ip link)", n, back, refused)
	}
	return fmt.Sprintf("%d packets of %d bytes left", n, t.options.size), nil
}

// sendAndReap sends frames, and keeps those that return.
func (t *tester) sendAndReap(p *xdp.Port) (refused int, err error) {
	n, back := len(t.idle), 0
	for end := time.Now().Add(giveUp); back < n && time.Now().Before(end); time.Sleep(soon) {
		if err = p.Kick(); err != nil {
			break
		}
		got := p.Reap(t.idle[back:])
		for _, f := range t.idle[back : back+got] {
			if f.Err() != nil {
				refused++
			}
		}
		back += got
	}
	t.idle = t.idle[:back]
	return refused, err
}

// listen waits a moment for echoes. Without -echo at the other end there are none.
func (t *tester) listen() (string, error) {
	for end := time.Now().Add(giveUp / 4); t.echoes < batch && time.Now().Before(end); time.Sleep(soon) {
		for _, p := range t.session.iface.Ports() {
			var in [batch]umem.Frame
			n := p.Recv(in[:])
			for _, f := range in[:n] {
				if _, _, ours := read(t.session.region.Bytes(f)); !ours {
					return "", errors.New("a packet came that the filter should have left to the host")
				}
			}
			t.echoes += n
			p.Supply(in[:n]) // there is room: the frames came out of this ring
		}
	}
	if t.echoes == 0 {
		return fmt.Sprintf("none came back from %v: nobody runs unified-xdp-test -echo at the other end", &t.options.to), harness.ErrSkip
	}
	return fmt.Sprintf("%d of %d came back", t.echoes, batch), nil
}

// exchange replaces the filter with another.
func (t *tester) exchange() (string, error) {
	return "exchanged while packets flow", t.session.iface.SetFilter(t.options.expr)
}

// balance compares the arrived packets with their outcomes.
func (t *tester) balance() (string, error) {
	if err := t.session.iface.Stop(); err != nil {
		return "", err
	}
	for tries := 0; ; tries++ {
		l, err := t.session.iface.Ledger()
		if err != nil {
			return "", err
		}
		if l.Missing() == 0 {
			return fmt.Sprintf("%d packets arrived, %d taken, %d left to the host, %d lost", l.Offered, l.Of(xdp.Received)+l.Of(xdp.Waiting),
				l.Of(xdp.KernelNoMatch)+l.Of(xdp.KernelTooLong)+l.Of(xdp.KernelNoSocket), l.Lost()), nil
		}
		if tries == 100 {
			return "", fmt.Errorf("of %d packets that arrived %d have no known fate", l.Offered, l.Missing())
		}
		time.Sleep(soon) // while the host's packets arrive, the counters are not from the same moment
	}
}

// reopen closes the interface and opens it again at once.
func (t *tester) reopen() (string, error) {
	if err := t.session.iface.Close(); err != nil {
		return "", err
	}
	begin := time.Now()
	queues, err := t.session.look()
	if err == nil {
		err = t.session.openInterface(queues)
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("after %v", time.Since(begin).Round(time.Millisecond)), t.session.iface.Close()
}

// giveBack checks that every frame is back in the pool.
func (t *tester) giveBack() (string, error) {
	s := t.session
	s.hands[0].holder.Give(t.idle)
	t.idle = nil
	count, err := s.region.Audit()
	if err != nil {
		return "", err
	}
	if in := count.Of(umem.OwnerPool); in != s.region.Frames() {
		return "", fmt.Errorf("%d of %d frames are back in the pool: %v", in, s.region.Frames(), count)
	}
	return fmt.Sprintf("all %d frames are back", s.region.Frames()), nil
}
