package bpf

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf/dispatcher"
)

// Mode says where in the receive path the program runs.
type Mode uint8

const (
	// Any is Driver where the driver takes the program, else Generic.
	Any Mode = iota
	// Driver runs in the driver, before the kernel allocates anything.
	Driver
	// Generic runs in the network stack, on every interface, and is slow.
	Generic
)

// String returns the name of the mode.
func (m Mode) String() string {
	return [...]string{Any: "any", Driver: "driver", Generic: "generic"}[min(m, Generic)]
}

var modeFlags = map[Mode]link.XDPAttachFlags{Driver: link.XDPDriverMode, Generic: link.XDPGenericMode}

// Attach puts the program on the interface with this index in the network namespace of the calling
// thread. It stays there until Close or the end of the process. Mode returns the granted mode.
// Errors match [ErrOccupied], [ErrNoDriverMode], [ErrDriverRefused], [ErrOtherMode], [ErrAttached]
// or [ErrClosed], and with Config.Dispatcher those of package dispatcher.
func (p *Program) Attach(ifindex int, mode Mode) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.program == nil:
		return fmt.Errorf("attach to interface %d: %w", ifindex, ErrClosed)
	case p.link != nil:
		return fmt.Errorf("attach to interface %d: %w", ifindex, ErrAttached)
	case p.config.Dispatcher != nil:
		return p.join(ifindex, mode)
	case mode != Any:
		return p.attach(ifindex, mode)
	}
	err := p.attach(ifindex, Driver)
	if errors.Is(err, ErrNoDriverMode) || errors.Is(err, ErrDriverRefused) {
		return p.attach(ifindex, Generic)
	}
	return err
}

// Mode is how the program runs on its interface: Driver or Generic; Any while
// it is on none.
func (p *Program) Mode() Mode {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link == nil {
		return Any
	}
	return p.mode
}

func (p *Program) attach(ifindex int, mode Mode) error {
	l, err := link.AttachXDP(link.XDPOptions{Program: p.program, Interface: ifindex, Flags: modeFlags[mode]})
	if err != nil {
		return attachError(ifindex, mode, err)
	}
	p.link, p.mode = l, mode
	return nil
}

// attachError explains why the kernel did not attach the program. Which error
// means what is in dev_xdp_attach of net/core/dev.c and in the drivers.
func attachError(ifindex int, mode Mode, err error) error {
	iface, lookup := net.InterfaceByIndex(ifindex)
	if lookup != nil {
		return fmt.Errorf("attach to interface %d: %w", ifindex, errors.Join(lookup, err))
	}
	step := fmt.Sprintf("attach to %s in %s mode", iface.Name, mode)
	switch {
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return fmt.Errorf("%s: %w", step, occupied(iface))
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%s: %w (use generic mode)", step, ErrNoDriverMode)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s: %w (run as root, or with CAP_NET_ADMIN and CAP_BPF)", step, err)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ERANGE), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("%s: %w at MTU %d: %w (lower the MTU, allow multi-buffer, or use generic mode)",
			step, ErrDriverRefused, iface.MTU, err)
	}
	return fmt.Errorf("%s: %w", step, err)
}

// occupied names the program on the interface.
func occupied(iface *net.Interface) error {
	xdp, err := attached(iface.Index)
	if err != nil {
		return fmt.Errorf("%w to %s, and asking which: %w", ErrOccupied, iface.Name, err)
	}
	if xdp == nil {
		return fmt.Errorf("%w to an interface above or below %s (look with: ip link show)", ErrOccupied, iface.Name)
	}
	e := &ForeignError{Interface: iface.Name, ID: xdp.ProgId, Mode: attachedMode(xdp.AttachMode)}
	e.Name = programName(e.ID)
	e.LinkID = holder(iface.Index, e.ID)
	e.Dispatcher = dispatcher.Is(e.ID)
	return e
}

// attached returns the XDP attachment of the interface, or nil.
func attached(ifindex int) (*netlink.LinkXdp, error) {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return nil, err
	}
	if xdp := l.Attrs().Xdp; xdp != nil && xdp.Attached {
		return xdp, nil
	}
	return nil, nil
}

func attachedMode(mode uint32) Mode {
	switch mode {
	case nl.XDP_ATTACHED_DRV:
		return Driver
	case nl.XDP_ATTACHED_SKB:
		return Generic
	}
	return Any
}

// programName returns the name of a program, or "" when the kernel does not
// tell, which needs CAP_SYS_ADMIN or more.
func programName(id uint32) string {
	program, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
	if err != nil {
		return ""
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return ""
	}
	return info.Name
}

// holder returns the id of the bpf_link that holds the program on the
// interface, or 0 when none does or the kernel does not tell.
func holder(ifindex int, program uint32) uint32 {
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err != nil || info.XDP() == nil {
			continue
		}
		if info.XDP().Ifindex == uint32(ifindex) && uint32(info.Program) == program {
			return uint32(info.ID)
		}
	}
	return 0
}

// Verdict is the decision on a packet. Every packet has exactly one.
type Verdict uint8

// The verdicts, as in enum verdict of unifiedd.bpf.c.
const (
	// Redirected packets were handed to the socket of their queue.
	Redirected = Verdict(captureVerdictVERDICT_REDIRECTED)
	// NoMatch packets were left to the kernel: the filter does not want them.
	NoMatch = Verdict(captureVerdictVERDICT_NO_MATCH)
	// TooLong packets were left to the kernel: wanted, but above Config.MaxLen.
	TooLong = Verdict(captureVerdictVERDICT_TOO_LONG)
	// NoSocket packets were left to the kernel: wanted, and short enough, but no
	// socket is bound to their queue; in a dispatcher also those that were to be dropped there.
	NoSocket = Verdict(captureVerdictVERDICT_NO_SOCKET)
	// Unclear packets were left to the kernel: the user's program returned a value that has no
	// meaning.
	Unclear = Verdict(captureVerdictVERDICT_UNCLEAR)
	// Dropped packets reach neither a socket nor the kernel, by a rule or the user's program.
	Dropped = Verdict(captureVerdictVERDICT_DROPPED)
	// Verdicts is the number of verdicts.
	Verdicts = int(captureVerdictVERDICT_COUNT)
)

var verdictNames = [Verdicts]string{
	Redirected: "redirected", NoMatch: "no_match", TooLong: "too_long", NoSocket: "no_socket",
	Unclear: "unclear", Dropped: "dropped",
}

// String returns the name of the verdict as metrics use it.
func (v Verdict) String() string {
	if int(v) >= Verdicts {
		return "unknown"
	}
	return verdictNames[v]
}

// Counter counts packets and their bytes, from the Ethernet header on, without
// the frame check sequence.
type Counter struct {
	Packets, Bytes uint64
}

// Counters are indexed by [Verdict].
type Counters [Verdicts]Counter

func (c *Counters) add(d Counters) {
	for v := range d {
		c[v].Packets += d[v].Packets
		c[v].Bytes += d[v].Bytes
	}
}

// Since returns the counts since an earlier reading.
func (c Counters) Since(before Counters) Counters {
	for v := range c {
		c[v].Packets -= before[v].Packets
		c[v].Bytes -= before[v].Bytes
	}
	return c
}

// Total is the sum over all verdicts: what reached the program.
func (c Counters) Total() Counter {
	var sum Counter
	for _, k := range c {
		sum.Packets += k.Packets
		sum.Bytes += k.Bytes
	}
	return sum
}

// Seats is how many selections one program may serve.
const Seats = 16

// Seated is a selection with a seat, a number from 0 to [Seats]-1. The program has sockets and counters for
// each seat.
type Seated struct {
	Seat int
	Selection
}

// table has the selections of a program, in the order in which the program evaluates them.
type table struct {
	Selection       // of the only one, or the rules of all
	seats     []int // of each rule; nil: the first seat
	numbers   []int // of each rule, under which it is counted; 0: it is not
	all       []Seated
}

// oneTable is the table of a program with one selection.
func oneTable(s Selection) table { return table{Selection: s, all: []Seated{{Selection: s}}} }

// newTable puts the rules of all selections into one list: the first rule that matches a packet decides. A
// filter counts as a rule whose action is Take.
func newTable(all []Seated) (table, error) {
	if len(all) == 1 && all[0].Seat == 0 {
		return oneTable(all[0].Selection), nil
	}
	t := table{all: all}
	t.Rules = []Rule{}
	var taken [Seats]bool
	for _, one := range all {
		switch {
		case one.Seat < 0 || one.Seat >= Seats || taken[one.Seat]:
			return t, fmt.Errorf("load XDP program: seat %d: it must be from 0 to %d, and one for each", one.Seat, Seats-1)
		case one.Own != nil:
			return t, fmt.Errorf("load XDP program: %s decides on every packet: who has it cannot share an interface", one.Own)
		}
		taken[one.Seat] = true
		for _, r := range one.asRules() {
			t.Rules, t.seats = append(t.Rules, r), append(t.seats, one.Seat)
		}
	}
	return t, nil
}

// asRules is the selection as rules.
func (s *Selection) asRules() []Rule {
	if s.Rules != nil {
		return s.Rules
	}
	return []Rule{{Name: "filter", Match: s.Filter, Action: Take}}
}

// seat returns the seat of a rule.
func (t *table) seat(rule int) int {
	if t.seats == nil {
		return 0
	}
	return t.seats[rule]
}

// rulesOf returns the rules of a seat and their numbers.
func (t *table) rulesOf(seat int) (rules []Rule, numbers []int) {
	first := 0
	for _, one := range t.all {
		if one.Seat == seat {
			return one.Rules, t.numbers[first:][:len(one.Rules)]
		}
		first += len(one.asRules())
	}
	return nil, nil
}

// ruleNumbers is how many numbers there are for rules, including 0: RULE_BITS of unifiedd.bpf.c.
const ruleNumbers = 256

// number gives the rules numbers. A seat whose rules are the same slice keeps their numbers. All other rules
// get numbers that the old table does not use, since the program may still apply that table to packets. It
// returns the new numbers.
func (t *table) number(old *table) (fresh []int) {
	var taken [ruleNumbers]bool
	taken[0] = true
	for _, n := range old.numbers {
		taken[n] = true
	}
	for _, one := range t.all {
		rules, numbers := old.rulesOf(one.Seat)
		if len(rules) > 0 && len(rules) == len(one.Rules) && &rules[0] == &one.Rules[0] {
			t.numbers = append(t.numbers, numbers...)
			continue
		}
		for range one.Rules {
			n := slices.Index(taken[:], false)
			taken[n] = true
			fresh, t.numbers = append(fresh, n), append(t.numbers, n)
		}
		if one.Rules == nil {
			t.numbers = append(t.numbers, 0)
		}
	}
	return fresh
}

// clearRules resets the counters of the rules with these numbers to zero.
func (p *Program) clearRules(numbers []int) error {
	nothing := make([]captureCounter, len(p.buffer))
	for _, n := range numbers {
		if err := p.maps.rules.Put(uint32(n), nothing); err != nil {
			return fmt.Errorf("clear the counter of a rule: %w", err)
		}
	}
	return nil
}

// Arrange replaces all selections. The program evaluates them in this order: the first rule that matches a
// packet decides which seat gets it. The kernel gets the packets that no rule matches. Otherwise Arrange
// works as Select does. A program of the user's own must be the only selection.
func (p *Program) Arrange(all []Seated) error {
	t, err := newTable(all)
	if err != nil {
		return err
	}
	return p.change(t)
}

// CountersOf returns the counters of one seat.
func (p *Program) CountersOf(seat int) (c Counters, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.program == nil {
		return c, fmt.Errorf("read counters: %w", ErrClosed)
	}
	return p.count(seat)
}

// count reads the counters of a seat; p.mu is held.
func (p *Program) count(seat int) (c Counters, err error) {
	if seat < 0 || seat >= Seats {
		return c, fmt.Errorf("read counters: there is no seat %d", seat)
	}
	for v := range c {
		if c[v], err = p.sum(p.maps.counters, uint32(seat*Verdicts+v)); err != nil {
			return Counters{}, fmt.Errorf("read the counter of %s packets: %w", Verdict(v), err)
		}
	}
	return c, nil
}
