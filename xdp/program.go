package xdp

import (
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/bpf/dispatcher"
)

// programTry is one way of attaching the program.
type programTry struct {
	mode        bpf.Mode
	multiBuffer bool
}

// programTries are the ways of attaching, best first. Drivers refuse a program
// without multi-buffer at a large MTU, and some any program with it, whatever the
// sockets can take; packets too long for the sockets it leaves to the kernel. Where
// the kernel cannot hand packets of several buffers to a socket at all, however
// short (xdp_do_redirect in net/core/filter.c before Linux 6.6), the program must not
// get such. In generic mode it never does: there the kernel makes packets one piece for a program without
// multi-buffer, and new packets of pages for one with it, which costs more (netif_skb_check_for_xdp in net/core/dev.c).
func (c *Config) programTries(g *Granted, fragments bool) []programTry {
	var out []programTry
	for _, mode := range []bpf.Mode{bpf.Driver, bpf.Generic} {
		switch {
		case c.Mode != bpf.Any && c.Mode != mode, g.ZeroCopy && mode == bpf.Generic:
			continue
		case mode == bpf.Generic:
			out = append(out, programTry{mode, false})
			continue
		}
		out = append(out, programTry{mode, g.MultiBuffer})
		if fragments && (g.MultiBuffer || c.Own == nil || c.Own.Fragments()) {
			out = append(out, programTry{mode, !g.MultiBuffer})
		}
	}
	return out
}

// loaded is what a program is loaded for.
type loaded struct {
	multiBuffer bool
	maxPacket   uint32
}

// provideProgram attaches the program to go with what will be granted, and notes
// in g how. A program from the way of binding tried before stays if it fits: each
// attaching makes a card lose its link for a while.
func (i *Interface) provideProgram(g *Granted) error {
	want := loaded{g.MultiBuffer, g.MaxPacket}
	if i.program != nil && i.loaded == want && (i.program.Mode() == bpf.Driver || !g.ZeroCopy) {
		g.note(i.program)
		return nil
	}
	err := i.dropProgram()
	if err != nil {
		return err
	}
	if i.program, err = i.attach(g); err != nil {
		return err
	}
	i.loaded = want
	i.company.mu.Lock()
	defer i.company.mu.Unlock()
	return i.noteProgram()
}

func (i *Interface) attach(g *Granted) (*bpf.Program, error) {
	var refused []error
	for _, t := range i.config.programTries(g, i.noFragments == nil) {
		p, err := i.attachAs(t, g)
		if err == nil {
			g.note(p)
			return p, nil
		}
		if !refusedByDriver(err) {
			return nil, err
		}
		refused = appendNew(refused, err)
	}
	return nil, errors.Join(refused...)
}

// errNoArrival: what NoArrival says.
var errNoArrival = errors.New("the dispatcher on the interface calls no programs that write times in front of packets: those of xdp-tools do from 1.5.5 on")

// note says how the program runs.
func (g *Granted) note(p *bpf.Program) {
	g.Mode, g.Dispatched, g.NoArrival = p.Mode(), p.InDispatcher(), nil
	if p.Unstamped() {
		g.NoArrival = errNoArrival
	}
}

// appendNew leaves out an error that says the same as one before.
func appendNew(errs []error, err error) []error {
	for _, e := range errs {
		if e.Error() == err.Error() {
			return errs
		}
	}
	return append(errs, err)
}

func refusedByDriver(err error) bool {
	return errors.Is(err, bpf.ErrNoDriverMode) || errors.Is(err, bpf.ErrDriverRefused) || errors.Is(err, bpf.ErrOtherMode)
}

// attachAs attaches a program that asks for the card's clock, if that is to be, and can;
// else one that does not.
func (i *Interface) attachAs(t programTry, g *Granted) (*bpf.Program, error) {
	if g.CardClock {
		p, err := i.attachFor(t, g.MaxPacket, i.device.index)
		if err == nil || refusedByDriver(err) {
			return p, err
		}
		if err := i.withoutCardClock(err); err != nil {
			return nil, err
		}
		g.CardClock, g.PTPClock, g.NoCardClock = i.granted.CardClock, i.granted.PTPClock, i.granted.NoCardClock
	}
	return i.attachFor(t, g.MaxPacket, 0)
}

var (
	errGenericClock    = errors.New("a program in generic mode cannot ask the card")
	errDispatcherClock = errors.New("a program in libxdp's dispatcher cannot ask the card, as one that has the interface for itself can")
)

// noCardClock is why a program cannot have times of the card's clock, or nil.
func noCardClock(t programTry, d *dispatcher.Interface) error {
	switch {
	case t.mode == bpf.Generic:
		return errGenericClock
	case d != nil:
		return errDispatcherClock
	}
	return nil
}

// findDispatcher looks for a dispatcher to join, if that is wanted; nil: there is none. A program that is no dispatcher is in the way, which
// attaching ours says.
func (i *Interface) findDispatcher() (*dispatcher.Interface, error) {
	if i.config.Beside == nil {
		return nil, nil
	}
	d, err := dispatcher.Find(i.device.index)
	if errors.Is(err, dispatcher.ErrOther) {
		return nil, nil
	}
	return d, err
}

// priority is that of the program in a dispatcher.
func (i *Interface) priority() uint32 {
	if i.config.Beside == nil {
		return 0
	}
	return *i.config.Beside
}

// attachFor loads and attaches a program, bound to a device if that is not 0.
func (i *Interface) attachFor(t programTry, maxLen uint32, device int) (*bpf.Program, error) {
	d, err := i.findDispatcher()
	if err != nil {
		return nil, err
	}
	if why := noCardClock(t, d); device != 0 && why != nil {
		d.Close()
		return nil, why
	}
	p, err := bpf.Load(bpf.Config{
		Dispatcher:  d,
		Priority:    i.priority(),
		Queues:      int(i.device.queues),
		MultiBuffer: t.multiBuffer,
		MaxLen:      maxLen,
		Timestamps:  i.config.Timestamps,
		Device:      device,
		Filter:      i.config.Filter,
		Rules:       i.config.Rules,
		Own:         i.config.Own,
	})
	if err != nil {
		d.Close()
		return nil, err
	}
	if err := p.Attach(i.device.index, t.mode); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// noteProgram remembers which program is attached, for Check; the shared interface's lock is held, from
// before it was attached where Check may run.
func (i *Interface) noteProgram() error {
	if i.program == nil {
		return nil
	}
	state, err := i.device.look()
	if err != nil {
		return fmt.Errorf("look for the program on %s: %w", i.Name(), err)
	}
	i.company.programID = state.program
	return nil
}

// dropProgram takes the program off the interface.
func (i *Interface) dropProgram() error {
	if i.program == nil {
		return nil
	}
	err := i.program.Close()
	i.program = nil
	return err
}
