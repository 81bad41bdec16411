package xdp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/bpf/dispatcher"
)

// programTry is one way of attaching the program.
type programTry struct {
	mode        bpf.Mode
	multiBuffer bool
}

// programTries returns the ways of attaching, best first. Drivers refuse a program without multi-buffer at
// a large MTU. Some refuse any program with it, whatever the sockets support; the program leaves packets
// that are too long for the sockets to the kernel. Before Linux 6.6 the kernel cannot pass packets of
// several buffers to a socket, however short they are (xdp_do_redirect in net/core/filter.c). There the
// program must not get such packets. In generic mode the program never gets them: for a program without
// multi-buffer the kernel makes packets one piece. For one with it the kernel makes new packets of pages,
// which costs more (netif_skb_check_for_xdp in net/core/dev.c).
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

// loaded is the configuration that a program was loaded for.
type loaded struct {
	multiBuffer bool
	maxPacket   uint32
}

// provideProgram attaches the program that fits the way of binding, and records how in g. The program of
// the way that was tried before stays if it fits: each attach makes a card lose its link for a while.
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
	i.shared.mu.Lock()
	defer i.shared.mu.Unlock()
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

// errNoArrival is the value of Granted.NoArrival.
var errNoArrival = errors.New("the dispatcher on the interface calls no programs that write timestamps: those of xdp-tools do since 1.5.5")

// note records how the program runs.
func (g *Granted) note(p *bpf.Program) {
	g.Mode, g.Dispatched, g.NoArrival = p.Mode(), p.InDispatcher(), nil
	if p.Unstamped() {
		g.NoArrival = errNoArrival
	}
}

// appendNew appends an error unless one with the same text is there.
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

// attachAs attaches a program that asks for the card's clock if that is requested and possible,
// otherwise one that does not.
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

// noCardClock returns why a program cannot have times of the card's clock, or nil.
func noCardClock(t programTry, d *dispatcher.Interface) error {
	switch {
	case t.mode == bpf.Generic:
		return errGenericClock
	case d != nil:
		return errDispatcherClock
	}
	return nil
}

// findDispatcher looks for a dispatcher to join, if the caller wants that; nil: there is none. If
// another program is on the interface, the attach reports it.
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

// priority returns the program's priority in a dispatcher.
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

// noteProgram records which program is attached, for Check. The caller holds the shared interface's
// lock. If Check may run, it has held the lock since before the attach.
func (i *Interface) noteProgram() error {
	if i.program == nil {
		return nil
	}
	state, err := i.device.look()
	if err != nil {
		return fmt.Errorf("look for the program on %s: %w", i.Name(), err)
	}
	i.shared.programID = state.program
	return nil
}

// dropProgram detaches the program from the interface.
func (i *Interface) dropProgram() error {
	if i.program == nil {
		return nil
	}
	err := i.program.Close()
	i.program = nil
	return err
}

// Check checks whether the interface still is as it should be. A control goroutine should call it
// about once a second. Errors match ErrInterfaceGone, ErrInterfaceDown or ErrProgramGone. A new
// name is not an error: Name returns it.
func (i *Interface) Check() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return fmt.Errorf("check %s: %w", i.Name(), ErrClosed)
	}
	i.shared.mu.Lock() // so that no program is exchanged between the look at the device and the comparison
	defer i.shared.mu.Unlock()
	s, err := i.device.look()
	if err != nil {
		return fmt.Errorf("check %s: %w", i.Name(), err)
	}
	if s.name != i.Name() {
		i.name.Store(&s.name)
	}
	// A card loses its link for a while when its program is detached. That must not hide the cause.
	if err := i.checkProgram(s); err != nil {
		return err
	}
	switch {
	case !s.up:
		return fmt.Errorf("check %s: %w (ip link set %s up)", s.name, ErrInterfaceDown, s.name)
	case !s.carrier:
		return fmt.Errorf("check %s: %w: no carrier (look at the cable, or the other end)", s.name, ErrInterfaceDown)
	}
	return nil
}

func (i *Interface) checkProgram(s deviceState) error {
	if i.program == nil || s.program == i.shared.programID {
		return nil
	}
	if s.program != 0 && i.program.InDispatcher() {
		return i.checkDispatcher(s)
	}
	return programGone(s)
}

// checkDispatcher checks whether the program is in the present dispatcher. Other processes replace
// the dispatcher when they add or remove their programs.
func (i *Interface) checkDispatcher(s deviceState) error {
	switch id, err := i.program.Dispatched(); {
	case errors.Is(err, dispatcher.ErrLocked), errors.Is(err, dispatcher.ErrBusy):
		return nil // another process is changing it; the next Check decides
	case err != nil:
		return fmt.Errorf("check %s: %w: %w", s.name, ErrProgramGone, err)
	case id == 0:
		return programGone(s)
	default:
		i.shared.programID = id
		return nil
	}
}

func programGone(s deviceState) error {
	by := "nothing is in its place"
	if s.program != 0 {
		by = fmt.Sprintf("program %d is in its place", s.program)
	}
	return fmt.Errorf("check %s: %w: %s (open the interface again)", s.name, ErrProgramGone, by)
}

// flagStripTags is ETH_FLAG_RXVLAN of include/uapi/linux/ethtool.h: the card removes VLAN tags from
// packets and writes them into its descriptors. XDP programs cannot see them there (except with
// bpf_xdp_metadata_rx_vlan_tag on a few drivers).
const flagStripTags = 1 << 8

// keepTags makes the card leave VLAN tags in packets, until restoreTags. The host still receives
// them, because its stack also finds a tag in the packet. If a card cannot do that, it continues to
// remove them, and Granted says so.
func (d *device) keepTags(name string) error {
	flags, err := ethtoolValue(d.ctl, name, unix.ETHTOOL_GFLAGS, 0)
	if errors.Is(err, unix.EOPNOTSUPP) || err == nil && flags&flagStripTags == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask whether the card takes VLAN tags out: %w", err)
	}
	switch _, err = ethtoolValue(d.ctl, name, unix.ETHTOOL_SFLAGS, flags&^flagStripTags); {
	case err == nil:
		d.keepsTags = true
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPERM): // fixed, or not allowed
		d.stripsTags = true
	default:
		return fmt.Errorf("have VLAN tags left in packets: %w", err)
	}
	return nil
}

// restoreTags undoes keepTags. An interface that is gone needs nothing.
func (d *device) restoreTags() error {
	if !d.keepsTags {
		return nil
	}
	d.keepsTags = false
	link, err := d.handle.LinkByIndex(d.index)
	if err != nil {
		return nil
	}
	name := link.Attrs().Name
	flags, err := ethtoolValue(d.ctl, name, unix.ETHTOOL_GFLAGS, 0)
	if err == nil {
		_, err = ethtoolValue(d.ctl, name, unix.ETHTOOL_SFLAGS, flags|flagStripTags)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("have the card take VLAN tags out of packets again: %w", err)
	}
	return nil
}
