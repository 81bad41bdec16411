package xdp

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/bpf/dispatcher"
	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/netdev"
	"github.com/unifiedd/unifiedd/umem"
)

// Interface is one network interface with its sockets and its program. Everything
// above mu is set by Open.
type Interface struct {
	config  Config // adapted to the device
	asked   Config // as the caller gave it
	device  *device
	name    atomic.Pointer[string]
	granted Granted
	program *bpf.Program // nil without one
	loaded  loaded       // the configuration that the program was loaded for
	ports   []*Port
	unbound []uint32
	stopped atomic.Bool // no packet is on its way to a port

	shared    *sharedInterface
	seat      int           // its index in the program
	rank      int           // among the others; the shared interface's lock guards it and the next field
	selection bpf.Selection // the packets that it wants
	enabled   bool          // whether the program asks its selection; same lock
	counted   Selected      // its last counters, once the program does not ask its selection; same lock

	since         [bpf.Seats]bpf.Counters // the program's counters when it was opened
	before        lost                    // the device's losses by then
	unsentBefore  uint64                  // packets not sent by then
	refusedBefore uint64                  // packets that other sockets had refused by then

	noFragments error // why the kernel does not support packets of several frames

	closing      sync.Mutex // held by Close, one at a time
	mu           sync.Mutex
	registration *umem.Registration
	open         int    // ports not closed
	lost         lost   // by the device, as of the last Ledger
	final        Ledger // the Ledger after Close
	unsent       uint64 // the result of Unsent after Close
	closed       bool
}

// Open binds sockets to the interface's queues, loads the program and attaches it. Until Start the
// program leaves every packet to the kernel, so the caller can supply the ports first. The caller
// closes the Interface.
//
// Open looks the interface up in the network namespace of the calling thread. Later calls reach it
// from any thread. Open must run on the thread of the Holders' Books, or before those run.
//
// Errors match ErrNoZeroCopy, ErrQueueBusy, ErrPermission, ErrMemlock, ErrNotSupported,
// ErrInterfaceGone, or those of bpf.Load and Attach.
func Open(c Config) (*Interface, error) {
	if err := c.complete(); err != nil {
		return nil, fmt.Errorf("open %s: %w", c.Interface, err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	i := &Interface{config: c, asked: c, shared: &sharedInterface{}, rank: c.Rank, selection: c.selection(), enabled: true}
	i.shared.add(i)
	i.name.Store(&i.config.Interface)
	if err := i.openAll(); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", c.Interface, err), i.Close())
	}
	return i, nil
}

func (i *Interface) openAll() (err error) {
	if i.device, err = findDevice(i.config.Interface); err != nil {
		return err
	}
	i.config.Interface = i.device.name
	if err := i.checkLink(); err != nil {
		return err
	}
	if err := i.suitKind(); err != nil {
		return err
	}
	queues, rest, err := i.config.choose(i.device.queues)
	if err != nil {
		return err
	}
	i.unbound, i.before, i.unsentBefore = rest, i.device.before, i.device.unsent
	if err := i.receiveWhole(); err != nil {
		return err
	}
	if err := i.cardClock(); err != nil {
		return err
	}
	return i.bindSomehow(queues)
}

// Link returns the link type of the interface's packets.
func (i *Interface) Link() linktype.Type { return i.device.link }

// checkLink refuses an interface whose link type is not the expected one.
func (i *Interface) checkLink() error {
	if i.device.link != linktype.Ethernet && !i.config.RawIP {
		d, err := netdev.Find(i.device.name)
		if err != nil {
			return err
		}
		return d.NeedEthernet("what reads its packets")
	}
	return checkFilters(i.config.selection(), i.device)
}

// checkFilters refuses expressions about packets of another link type.
func checkFilters(s bpf.Selection, d *device) error {
	all := []*filter.Expr{s.Filter}
	for _, r := range s.Rules {
		all = append(all, r.Match)
	}
	for _, e := range all {
		if e != nil && !e.Fits(d.link) {
			return fmt.Errorf("%w: filter %q was compiled for packets of another link type, and those of %s are %v", netdev.ErrLinkType, e, d.name, d.link)
		}
	}
	return nil
}

// receiveWhole makes the card deliver packets as they were on the wire, and all packets in
// promiscuous mode.
func (i *Interface) receiveWhole() error {
	if !i.config.Direction.receives() {
		return nil
	}
	if err := i.device.keepTags(i.config.Interface); err != nil {
		return err
	}
	if !i.config.Promiscuous {
		return nil
	}
	return i.device.listen()
}

// bindSomehow tries the bind modes in order of preference.
func (i *Interface) bindSomehow(queues []uint32) error {
	c := &i.config
	fits := c.frameMTU()
	i.noFragments = takesFragments()
	for _, a := range c.attempts(i.device) {
		before := i.config
		err := i.config.suit(a, i.device)
		if err == nil {
			err = i.try(a, queues)
		}
		if err == nil {
			return nil
		}
		i.config = before
		if isFinal(err) {
			return err
		}
		i.granted.Refused = append(i.granted.Refused, Refusal{a.zeroCopy, a.multiBuffer, err})
	}
	e := &BindError{Interface: i.device.describe(), Below: i.device.stack.Below, Policy: c.Policy, Refused: i.granted.Refused}
	if i.device.mtu > fits {
		e.MTU, e.FrameMTU = i.device.mtu, fits
	}
	return e
}

// isFinal reports whether every other way of binding would fail in the same way.
func isFinal(err error) bool {
	for _, is := range []error{ErrQueueBusy, ErrInterfaceGone, ErrPermission, ErrMemlock, ErrNoCardClock, bpf.ErrOccupied, bpf.ErrRefused, bpf.ErrNoExtensions, filter.ErrTooLarge,
		dispatcher.ErrVersion, dispatcher.ErrFull, dispatcher.ErrNoFiles, dispatcher.ErrNoPins, dispatcher.ErrPermission, dispatcher.ErrLocked, dispatcher.ErrBusy} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

// try attaches the program for one way of binding, and binds all queues in that way. The program
// comes first: a driver that gets a program makes its rings again, and some then forget to ask for
// frames (igb_xdp_setup).
func (i *Interface) try(a attempt, queues []uint32) error {
	if a.multiBuffer && i.noFragments != nil {
		return i.noFragments
	}
	g := i.expect(a)
	if i.config.ownProgram() {
		if err := i.provideProgram(&g); err != nil {
			return err
		}
	}
	sockets, err := i.bindAll(a, queues)
	if err != nil {
		return err
	}
	if g.ZeroCopy, err = isZeroCopy(sockets[0].fd); err != nil {
		err = fmt.Errorf("ask what queue %d was granted: %w", sockets[0].queue, err)
		return errors.Join(err, closeAll(sockets))
	}
	i.timed(&g, sockets[0])
	if err := i.config.sendsAlone(a, sockets); err != nil {
		return errors.Join(err, closeAll(sockets))
	}
	i.granted = g
	if err := i.makePorts(sockets); err != nil {
		return errors.Join(err, closeAll(sockets))
	}
	return nil
}

// expect returns what sockets that are bound in this way get.
func (i *Interface) expect(a attempt) Granted {
	g := Granted{
		ZeroCopy: a.zeroCopy, MultiBuffer: a.multiBuffer,
		NeedWakeup: !i.config.AlwaysWake, Refused: i.granted.Refused, TagsStripped: i.device.stripsTags,
		CardClock: i.granted.CardClock, PTPClock: i.granted.PTPClock, NoCardClock: i.granted.NoCardClock,
	}
	if !g.MultiBuffer {
		g.MaxPacket = i.config.frameRoom()
	}
	return g
}

// bindAll opens and binds a socket for each queue. The first registers the region,
// the others share the registration and with it the mode.
func (i *Interface) bindAll(a attempt, queues []uint32) (sockets []*socket, err error) {
	c := &i.config
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll(sockets))
			sockets = nil
		}
	}()
	deadline := time.Now().Add(c.BindTimeout)
	for _, q := range queues {
		s, err := c.openSocket(q, len(sockets) == 0)
		if err != nil {
			return sockets, fmt.Errorf("queue %d: %w", q, err)
		}
		var share *socket
		if len(sockets) > 0 {
			share = sockets[0]
		}
		sockets = append(sockets, s)
		if err := s.bind(i.device.index, a.flags(!c.AlwaysWake), share, deadline); err != nil {
			return sockets, fmt.Errorf("bind queue %d: %w", q, bindError(a, err))
		}
	}
	return sockets, nil
}

// makePorts makes a port for each socket. From here on the region counts as registered.
func (i *Interface) makePorts(sockets []*socket) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, s := range sockets {
		p, err := i.newPort(s)
		if err != nil {
			i.closeHolders()
			return err
		}
		i.ports = append(i.ports, p)
	}
	i.open = len(i.ports)
	i.registration = i.config.region().Register("AF_XDP sockets of " + i.config.Interface)
	return nil
}

// closeHolders undoes newPort for the ports made so far.
func (i *Interface) closeHolders() {
	for _, p := range i.ports {
		p.held.Close()
		_ = p.probe.close()
	}
	i.ports = nil
}

func (i *Interface) newPort(s *socket) (*Port, error) {
	c := &i.config
	worker := c.holder(s.queue)
	held, err := worker.Book().NewHolder(umem.OwnerXDP, fmt.Sprintf("%s queue %d", c.Interface, s.queue))
	if err != nil {
		return nil, fmt.Errorf("queue %d: %w", s.queue, err)
	}
	return i.portOf(s, worker, held)
}

// portOf makes the port of a socket. On error it closes the holder.
func (i *Interface) portOf(s *socket, worker, held *umem.Holder) (p *Port, err error) {
	c := &i.config
	r := c.region()
	p = &Port{
		iface: i, worker: worker, held: held, region: r, socket: s, rings: &s.rings,
		limits: c.limits(i.granted, i.device), wake: newWake(c, s.queue), reserve: c.reserve,
		chunk: uint64(c.chunk()), zeroCopy: i.granted.ZeroCopy, loaned: c.Lent, unaligned: c.Shape.Unaligned,
	}
	p.most = uint32(p.limits.Supply)
	p.rxOffset = uint64(c.Shape.Offset())
	p.extents, p.extentBytes = r.ExtentRange()
	p.failed = make([]umem.Frame, 0, p.limits.Send)
	if c.Gather {
		p.due = make([]uint8, r.Size()/p.chunk)
	}
	p.clock.on, p.clock.off, p.clock.card = c.Timestamps && i.program != nil, c.Unstamped, i.granted.CardClock
	if p.times.on = i.granted.SendTimes; s.timed {
		p.txMetadataLen = SendRoom
	}
	if p.probe, err = newProbe(); err != nil {
		held.Close()
		return nil, fmt.Errorf("queue %d: %w", s.queue, err)
	}
	return p, nil
}

// Name is the interface's name at the last Check.
func (i *Interface) Name() string { return *i.name.Load() }

// Index is the interface's number in its network namespace.
func (i *Interface) Index() int { return i.device.index }

// Node returns the NUMA node of the card, numa.Unknown if the kernel does not know it, as for a
// device that is not on PCI.
func (i *Interface) Node() int { return i.device.node }

// Granted returns what the kernel granted.
func (i *Interface) Granted() Granted { return i.granted }

// Ports returns the ports, one for each bound queue, in the order of the queues. The caller owns the slice.
func (i *Interface) Ports() []*Port { return slices.Clone(i.ports) }

// Unbound returns the receive queues without a port. The kernel gets their traffic.
func (i *Interface) Unbound() []uint32 { return slices.Clone(i.unbound) }

// Start makes the program pass packets to the ports. Supply them first: a packet that finds no
// frame is lost. With NoProgram it does nothing.
func (i *Interface) Start() error {
	i.stopped.Store(false)
	err := i.eachSocket("start", func(p *Port) error { return i.program.SetSocketOf(i.seat, p.socket.queue, p.socket.fd) })
	if err != nil {
		return err
	}
	return i.setEnabled(true)
}

// Stop leaves packets to the kernel again, or to the Interfaces that the program asks next. Packets that
// wait in the ports stay there, and Recv still returns them. After Stop returns, no further packets arrive.
func (i *Interface) Stop() error {
	if err := i.setEnabled(false); err != nil {
		return err
	}
	err := i.eachSocket("stop", func(p *Port) error { return i.program.ClearSocketOf(i.seat, p.socket.queue) })
	if err == nil && i.program != nil && !i.stopped.Swap(true) {
		barrier()
	}
	return err
}

func (i *Interface) eachSocket(verb string, f func(*Port) error) error {
	if i.program == nil {
		return nil
	}
	for _, p := range i.ports {
		if err := p.whileOpen(f); err != nil {
			return fmt.Errorf("%s %s: %w", verb, i.Name(), err)
		}
	}
	return nil
}

// SetFilter exchanges the program's filter while packets flow; nil accepts all packets. It is
// Select with only a filter.
func (i *Interface) SetFilter(expr *filter.Expr) error { return i.Select(bpf.Selection{Filter: expr}) }

// Select replaces the selection of packets while packets flow. After an error the old selection
// stays. Errors are those of bpf.Load. It may be called from any goroutine; Check and Ledger wait
// for it.
func (i *Interface) Select(s bpf.Selection) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.program == nil {
		return fmt.Errorf("set the filter of %s: it was opened without a program", i.Name())
	}
	if err := checkFilters(s, i.device); err != nil {
		return fmt.Errorf("set the filter of %s: %w", i.Name(), err)
	}
	i.shared.mu.Lock()
	defer i.shared.mu.Unlock()
	before := i.selection
	i.selection = s
	if err := i.shared.updateFilters(i.program); err != nil {
		i.selection = before
		return fmt.Errorf("set the filter of %s: %w", i.Name(), err)
	}
	return i.noteProgram()
}

// Peek returns the frame that Recv will return after i others, and whether it is there already. The
// caller may read its bytes, but the kernel owns it until Recv returns it. It is for packets that
// are worth a look before there is time to receive them.
func (p *Port) Peek(i int) (f umem.Frame, ok bool) {
	rx := &p.rings.rx
	if p.closed || p.limits.Supply == 0 || rx.producer.Load()-rx.next <= uint32(i) {
		return f, false
	}
	f = rx.at(uint32(i))
	f.Options &= umem.More
	return f, true
}

// SendNow is Send of a packet of one frame, followed by Kick, in copy mode. It sends the packet
// first and counts it afterwards. It reports whether it was sent. It is not sent if there is no
// room, if Send would refuse it, outside copy mode, or if memory is lent. The error is Kick's.
func (p *Port) SendNow(f umem.Frame) (sent bool, err error) {
	tx := &p.rings.tx
	if p.closed || p.zeroCopy || p.loaned || p.sent >= uint32(p.limits.Send) || tx.room(1) == 0 || f.Len < etherHeader || !p.within(f) {
		return false, nil
	}
	f.Options = p.ask(f)
	tx.set(0, f)
	tx.publish(1)
	errno := p.syscall(unix.SYS_SENDTO)
	p.left(f)
	if errno == unix.EAGAIN || errno == unix.EBUSY {
		return true, p.Kick()
	}
	return true, p.wakeError(errno)
}

// Rehearse makes the call with which SendNow sends, with nothing to send, so that the kernel's code is in the caches of
// the processor when there is a packet. Outside copy mode it does nothing. Errors are Kick's.
func (p *Port) Rehearse() error {
	if p.closed || p.zeroCopy || p.limits.Send == 0 {
		return nil
	}
	return p.wakeError(p.syscall(unix.SYS_SENDTO))
}

// left counts a frame that SendNow has sent.
func (p *Port) left(f umem.Frame) {
	one := [1]umem.Frame{f}
	p.worker.PassTo(p.held, one[:])
	if p.due != nil {
		p.expect(one[:])
	}
	p.sent++
	p.counters.sent.add(1, 1, uint64(f.Len))
}

// Queues returns how many receive queues an interface has, by its name in the network namespace of
// the calling thread: as many as Open binds if no queues are listed. Errors match ErrInterfaceGone.
func Queues(name string) (int, error) {
	d, err := findDevice(name)
	if err != nil {
		return 0, fmt.Errorf("count the queues of %s: %w", name, err)
	}
	return int(d.queues), d.close()
}

// listen makes the card also deliver packets that are not for the host: packets for other addresses and,
// because most cards filter those too, of other VLANs. The kernel counts the sockets that request this. It
// drops the request with the socket, also after a crash (packet_mc_add in net/packet/af_packet.c).
func (d *device) listen() (err error) {
	// With protocol zero the socket itself receives no packets.
	if d.promiscuous, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open a socket for promiscuous mode: %w", err)
	}
	wanted := &unix.PacketMreq{Ifindex: int32(d.index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(d.promiscuous, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, wanted); err != nil {
		return fmt.Errorf("set promiscuous mode: %w", err)
	}
	return nil
}

// Selected has the counters of the current selection since it was set.
type Selected struct {
	Rules []bpf.RuleCounter
	Own   []bpf.OwnCounter // the counters of the user's own program
}

// Selected reads the counters of the selection. After Close, or without a program, there are
// none. It may be called from any goroutine.
func (i *Interface) Selected() (s Selected, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.shared.mu.Lock()
	defer i.shared.mu.Unlock()
	if !i.enabled {
		return i.counted, nil
	}
	if i.closed || i.program == nil {
		return s, nil
	}
	return i.selected()
}

func (i *Interface) selected() (s Selected, err error) {
	if s.Rules, err = i.program.RuleCountersOf(i.seat); err == nil {
		s.Own, err = i.program.OwnCounters()
	}
	if err != nil {
		return s, fmt.Errorf("%s: %w", i.Name(), err)
	}
	return s, nil
}
