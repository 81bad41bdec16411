package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/netdev"
	"github.com/unifiedd/unifiedd/umem"
)

// sharedInterface is the common state of the Interfaces of one device. It has the queues and the
// program, which evaluates the selections of the Interfaces in the order of members. Each Interface has
// a socket on each queue.
type sharedInterface struct {
	mu        sync.Mutex   // held while an Interface joins, leaves or changes its selection; taken after Interface.mu
	members   []*Interface // in the order in which the program evaluates their selections
	programID uint32       // ID of the attached program
	gone      uint64       // packets that sockets of former members refused
}

// updateFilters sets the program's selections to those of the members that are enabled. The caller holds mu.
func (c *sharedInterface) updateFilters(program *bpf.Program) error {
	var all []bpf.Seated
	for _, m := range c.members {
		if m.enabled {
			all = append(all, bpf.Seated{Seat: m.seat, Selection: m.selection})
		}
	}
	return program.Arrange(all)
}

// setEnabled makes the program evaluate the selection, or not. The only member of a device always is enabled:
// without sockets nothing arrives.
func (i *Interface) setEnabled(on bool) error {
	c := i.shared
	c.mu.Lock()
	defer c.mu.Unlock()
	if i.program == nil || i.enabled == on || len(c.members) == 1 || !slices.Contains(c.members, i) {
		return nil
	}
	if !on {
		i.counted, _ = i.selected() // counters that cannot be read count as 0
	}
	i.enabled = on
	err := c.exchange(i)
	if err == nil || i.isGone() {
		return nil
	}
	i.enabled = !on
	return fmt.Errorf("change who takes packets of %s: %w", i.Name(), err)
}

// isGone reports whether the device no longer exists, so that there is nothing to change.
func (i *Interface) isGone() bool {
	_, err := i.device.look()
	return errors.Is(err, ErrInterfaceGone)
}

// add inserts a member at the place of its rank.
func (c *sharedInterface) add(m *Interface) {
	c.members = append(c.members, m)
	slices.SortStableFunc(c.members, func(a, b *Interface) int { return cmp.Compare(a.rank, b.rank) })
}

func (c *sharedInterface) remove(m *Interface) {
	c.members = slices.DeleteFunc(slices.Clone(c.members), func(other *Interface) bool { return other == m })
}

// seat returns a free seat of the program, or -1.
func (c *sharedInterface) seat() int {
	for seat := range bpf.Seats {
		if !slices.ContainsFunc(c.members, func(m *Interface) bool { return m.seat == seat }) {
			return seat
		}
	}
	return -1
}

// refused returns how many packets the sockets of all present and former members did not take.
func (c *sharedInterface) refused() (n uint64, err error) {
	n = c.gone
	for _, m := range c.members {
		one, err := m.refused()
		if err != nil {
			return n, err
		}
		n += one
	}
	return n, nil
}

// refused returns how many packets the sockets did not take.
func (i *Interface) refused() (n uint64, err error) {
	for _, p := range i.ports {
		s, err := p.Stats()
		if err != nil {
			return n, err
		}
		ringFull, noFrames, tooLong := s.lost(i.granted)
		n += ringFull + noFrames + tooLong
	}
	return n, nil
}

// leave frees the seat, and reports whether no Interface is left.
func (i *Interface) leave() (last bool, err error) {
	c := i.shared
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.members, i) {
		return len(c.members) == 0, nil
	}
	refused, err := i.refused()
	c.gone += refused
	if c.remove(i); len(c.members) == 0 || i.program == nil {
		return len(c.members) == 0, err
	}
	if !i.enabled || i.isGone() {
		return false, err
	}
	return false, errors.Join(err, c.exchange(i))
}

// exchange sets the selections of all members, through one of them. The caller holds mu.
func (c *sharedInterface) exchange(i *Interface) error {
	if err := c.updateFilters(i.program); err != nil {
		return err
	}
	return i.noteProgram()
}

// Rank changes the order in which the program asks the Interfaces of a device for a packet. It asks
// lower ranks first, and those of equal rank in the order in which they were opened. After an error
// the old order remains.
func (i *Interface) Rank(rank int) error {
	c := i.shared
	c.mu.Lock()
	defer c.mu.Unlock()
	before, old := slices.Clone(c.members), i.rank
	i.rank = rank
	if !slices.Contains(c.members, i) {
		return nil
	}
	c.remove(i)
	c.add(i)
	if slices.Equal(before, c.members) || i.program == nil {
		return nil
	}
	if err := c.exchange(i); err != nil {
		i.rank, c.members = old, before
		return fmt.Errorf("change the order of who takes packets of %s: %w", i.Name(), err)
	}
	return nil
}

// Share opens the interface again for packets of another selection. It has more sockets on the same
// queues, each with its own rx ring, and frames of another book. The program asks the selections in
// the order of Config.Rank, and the first with a rule for a packet decides. Both configurations
// must be equal except for Holder, Rank, RingSize and the selection.
//
// All books must belong to one thread. Config.Thread runs on it the operations on the other books.
// Share runs in the network namespace of the interface. The errors are ErrShared, which says why
// sharing is impossible, ErrClosed if all members are closed, and those of Open.
//
// Each Interface is closed by itself, in any order.
func (i *Interface) Share(c Config) (*Interface, error) {
	if err := c.complete(); err != nil {
		return nil, fmt.Errorf("open %s: %w", c.Interface, err)
	}
	if err := i.sharedBy(&c); err != nil {
		return nil, fmt.Errorf("open %s: %w", c.Interface, err)
	}
	i.shared.mu.Lock()
	defer i.shared.mu.Unlock()
	n, err := i.beside(c)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", c.Interface, err)
	}
	return n, nil
}

// ErrShared says that an interface cannot be shared with this configuration.
var ErrShared = errors.New("the interface is open already, and cannot be shared")

// sharedBy returns why c cannot share the interface. c may use another name of it.
func (i *Interface) sharedBy(c *Config) error {
	if d, err := netdev.Find(c.Interface); err == nil && d.Index == i.device.index {
		c.Interface = i.asked.Interface
	}
	if err := i.asked.sharedBy(c); err != nil {
		return err
	}
	c.Interface = i.config.Interface
	if i.device.link != linktype.Ethernet && !c.RawIP {
		return fmt.Errorf("%w: packets of %s are %v, and what reads them expects Ethernet", netdev.ErrLinkType, c.Interface, i.device.link)
	}
	return checkFilters(c.selection(), i.device)
}

// sharedBy returns why d cannot share an interface that was opened with c.
func (c *Config) sharedBy(d *Config) error {
	for _, s := range []struct {
		what string
		same bool
	}{
		{"a name", c.Interface == d.Interface},
		{"packets that may land in the same memory (not place: here)", !c.Alone && !d.Alone},
		{"receiving alone", c.Direction == Receive && d.Direction == Receive},
		{"a program of ours", c.ownProgram() && d.ownProgram()},
		{"an expression or rules as filter, since a program of one's own decides on every packet", c.Own == nil && d.Own == nil},
		{"the same place beside other programs", sameNumber(c.Beside, d.Beside)},
		{"a region", c.region() == d.region()},
		{"a shape (both in the slot layout, or neither)", c.Shape == d.Shape},
		{"the same queues", slices.Equal(c.Queues, d.Queues)},
		{"one policy of zero copy", c.Policy == d.Policy && c.Mode == d.Mode},
		{"the same times of arrival", c.Timestamps == d.Timestamps && c.CardClock == d.CardClock && c.Unstamped == d.Unstamped},
		{"one promiscuous mode", c.Promiscuous == d.Promiscuous},
		{"the same busy polling", c.BusyPoll == d.BusyPoll && c.AlwaysWake == d.AlwaysWake},
	} {
		if !s.same {
			return fmt.Errorf("%w: that takes %s", ErrShared, s.what)
		}
	}
	return nil
}

func sameNumber(a, b *uint32) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

// beside is Share. The caller holds the lock of the shared interface.
func (i *Interface) beside(c Config) (n *Interface, err error) {
	seat, first := i.shared.seat(), i.shared.whole()
	switch {
	case first == nil:
		return nil, ErrClosed
	case seat < 0:
		return nil, fmt.Errorf("%w: %d are at it already", ErrShared, bpf.Seats)
	}
	n = &Interface{
		config: c, asked: c, device: i.device, granted: i.granted, program: i.program, loaded: i.loaded, unbound: i.unbound,
		noFragments: i.noFragments, shared: i.shared, seat: seat, rank: c.Rank, selection: c.selection(),
	}
	n.name.Store(i.name.Load())
	n.stopped.Store(true)
	if err := n.startFrom(); err != nil {
		return nil, err
	}
	if err := n.config.suit(attempt{i.granted.ZeroCopy, i.granted.MultiBuffer}, i.device); err != nil {
		return nil, err
	}
	if err := n.bindBeside(first); err != nil {
		return nil, err
	}
	n.shared.add(n)
	return n, nil
}

// startFrom records the present counters, which belong to the other Interfaces.
func (i *Interface) startFrom() error {
	state, err := i.device.look()
	if err != nil {
		return err
	}
	i.before, i.unsentBefore = state.lost, state.unsent
	if i.refusedBefore, err = i.shared.refused(); err != nil {
		return err
	}
	i.since, err = i.seatCounters()
	return err
}

// seatCounters reads the program's counters of each seat.
func (i *Interface) seatCounters() (all [bpf.Seats]bpf.Counters, err error) {
	for seat := range all {
		if all[seat], err = i.program.CountersOf(seat); err != nil {
			return all, err
		}
	}
	return all, nil
}

// bindBeside opens a socket on each queue of another Interface, and makes the ports.
func (i *Interface) bindBeside(first *Interface) (err error) {
	var sockets []*socket
	for _, p := range first.ports {
		s, err := i.config.openBeside(p.anchor(), i.device.index)
		if err != nil {
			return errors.Join(fmt.Errorf("queue %d: %w", p.socket.queue, err), closeAll(sockets))
		}
		sockets = append(sockets, s)
	}
	for n, s := range sockets {
		p, err := i.portBeside(s, first.ports[n])
		if err != nil {
			i.closeHolders()
			return errors.Join(err, closeAll(sockets))
		}
		i.ports = append(i.ports, p)
	}
	if err := i.onThread(func() { i.joinAll(first) }); err != nil {
		i.closeHolders()
		return errors.Join(err, closeAll(sockets))
	}
	for _, p := range i.ports {
		p.limits.Supply = int(p.most)
	}
	i.open = len(i.ports)
	i.registration = i.config.region().Register("AF_XDP sockets of " + i.config.Interface)
	return nil
}

// joinAll makes the ports share the fill rings of another Interface.
func (i *Interface) joinAll(first *Interface) {
	for n, p := range i.ports {
		p.join(first.ports[n].shared())
	}
}

// portBeside makes the port of a socket that shares the fill ring of another port.
func (i *Interface) portBeside(s *socket, other *Port) (*Port, error) {
	worker := i.config.holder(s.queue)
	held, err := worker.Book().NewSharedHolder(other.held, fmt.Sprintf("%s queue %d", i.config.Interface, s.queue))
	if err != nil {
		return nil, fmt.Errorf("queue %d: %w", s.queue, err)
	}
	return i.portOf(s, worker, held)
}

// anchor returns the socket that owns the fill ring. The caller holds the shared interface's lock.
func (p *Port) anchor() *socket {
	if p.fillAccount != nil {
		return p.fillAccount.anchor
	}
	return p.socket
}

// shared makes the port's fill ring shareable, on the thread of its book.
func (p *Port) shared() *fillAccount {
	if p.fillAccount == nil {
		p.join(&fillAccount{ring: p.rings.fill, anchor: p.socket})
	}
	return p.fillAccount
}

// onThread runs f on the thread of the ports' books.
func (i *Interface) onThread(f func()) error {
	if i.config.Thread == nil {
		f()
		return nil
	}
	return i.config.Thread(func() error { f(); return nil })
}

// openBeside makes a socket with an rx ring that shares queue and registration with another.
func (c *Config) openBeside(anchor *socket, ifindex int) (*socket, error) {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, socketError(err)
	}
	s := &socket{fd: fd, queue: anchor.queue}
	if err := s.equipBeside(c, anchor, ifindex); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *socket) equipBeside(c *Config, anchor *socket, ifindex int) error {
	if err := setInt(s.fd, unix.XDP_RX_RING, c.RingSize); err != nil {
		return fmt.Errorf("make rx ring of %d: %w", c.RingSize, err)
	}
	off, err := mmapOffsets(s.fd)
	if err != nil {
		return fmt.Errorf("map rings: ask for their offsets: %w", err)
	}
	if s.rings.rx.ring, s.rings.rx.slots, err = mapRing[umem.Frame](s.fd, unix.XDP_PGOFF_RX_RING, off.Rx, c.RingSize); err != nil {
		return fmt.Errorf("map rings: %w", err)
	}
	s.rings.fill, s.rings.borrowed = anchor.rings.fill, true
	if err := c.BusyPoll.set(s.fd); err != nil {
		return err
	}
	if err := s.bind(ifindex, 0, anchor, time.Now().Add(c.BindTimeout)); err != nil {
		return fmt.Errorf("bind beside another socket: %w", bindError(attempt{}, err))
	}
	return nil
}

// whole returns a member with all ports open, or nil.
func (c *sharedInterface) whole() *Interface {
	for _, m := range c.members {
		if !slices.ContainsFunc(m.ports, (*Port).isClosed) {
			return m
		}
	}
	return nil
}

func (p *Port) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// closeBeside is Close of a port whose queue other Interfaces share. The caller holds the shared
// interface's lock.
func (p *Port) closeBeside() error {
	p.mu.Lock()
	var errs []error
	if program := p.iface.program; program != nil && !p.iface.stopped.Load() {
		errs = append(errs, program.ClearSocketOf(p.iface.seat, p.socket.queue))
		barrier()
	}
	final, err := p.stats()
	p.final, p.closed = final, true
	p.mu.Unlock()
	errs = append(errs, err)
	if p.iface.onThread(p.withdraw) != nil {
		p.withdraw() // the thread has ended
	}
	if p.socket != p.fillAccount.anchor {
		errs = append(errs, p.socket.close())
	}
	p.settled = true
	errs = append(errs, p.probe.close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close a socket of %s: %w", p.iface.Name(), err)
	}
	return nil
}

// hasCompany reports whether other Interfaces share the port's queue. The caller holds the shared
// interface's lock.
func (p *Port) hasCompany() bool { return p.fillAccount != nil && len(p.fillAccount.ports) > 1 }
