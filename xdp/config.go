package xdp

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/umem"
)

// Direction says which rings the ports get.
type Direction uint8

const (
	// Both receives and sends, the default.
	Both Direction = iota
	// Receive has no rings for sending.
	Receive
	// Send has no rings for receiving and loads no program.
	Send
)

func (d Direction) receives() bool { return d != Send }
func (d Direction) sends() bool    { return d != Receive }

// Config says what Open opens. The zero value of every field but Interface and Holder is valid.
type Config struct {
	// Interface is the name of the interface in the network namespace of the
	// calling thread, or one of its alternative names.
	Interface string
	// RawIP also accepts interfaces whose packets begin with an IP header, such as tun and
	// WireGuard. Without it Open refuses them with netdev.ErrLinkType, because the reader of the
	// packets expects Ethernet.
	RawIP bool
	// Holder holds the frames outside the ports: the ports take frames from it, and return them to
	// it. The Region of its Book is registered.
	Holder *umem.Holder
	// Holders names another worker for single queues; all must be of one Region.
	Holders map[uint32]*umem.Holder
	// Queues lists the receive queues to bind; empty: all of the interface.
	Queues []uint32
	// Direction reports whether the ports receive, send or do both.
	Direction Direction

	// Policy reports whether zero copy is required, preferred or not wanted.
	Policy Policy
	// Shape is how packets land in frames. MultiBuffer is a request: without it, or
	// if it is not granted, packets longer than a frame are left to the kernel.
	Shape umem.Shape
	// RingSize is the number of descriptors of the rx, tx and completion rings, a
	// power of two; default 4096.
	RingSize uint32
	// FillSize is the number of descriptors of the fill ring, a power of two. It is also the
	// largest number of empty frames that a port holds; default RingSize.
	FillSize uint32
	// Gather enables Port.SendGathered. It costs a byte of memory for each frame of the region and
	// queue, and an access to it for each sent frame.
	Gather bool
	// Lent makes the ports send from memory that is lent to them (Port.Lend), several packets from
	// one extent. They do not take the frame of each packet. It requires Direction Send, as does
	// Shape.Unaligned.
	Lent bool
	// SendTimes has the kernel, or with zero copy the card, note when each packet left: see Port.SentAt. SendRoom bytes in
	// front of the packet are the kernel's then. Granted says whether they are. It is for ports that only send whole
	// frames of their own.
	SendTimes bool
	// AlwaysWake binds without XDP_USE_NEED_WAKEUP: every Kick with something to send makes a
	// system call. It is for drivers whose flag is not reliable.
	AlwaysWake bool
	// BusyPoll lets Kick run the driver's receive routine on the caller's CPU.
	BusyPoll BusyPoll

	// Promiscuous also receives packets that the card would drop because they are not for this host.
	Promiscuous bool
	// Timestamps makes the program record when each packet arrived. Without it a packet's
	// Side.Stamp is the time at which Recv took its batch.
	Timestamps bool
	// CardClock makes the program also ask the card for its time of arrival. If there is one, it is
	// Side.Stamp. It requires Timestamps.
	CardClock ClockPolicy
	// Unstamped leaves Side.Stamp unchanged. For callers that need no arrival time it saves reading
	// a clock for each batch.
	Unstamped bool
	// Filter, Rules and Own are a bpf.Selection: the packets that the program passes to the ports.
	// If Own does not support packets of several buffers, MultiBuffer is not granted.
	Filter *filter.Expr
	Rules  []bpf.Rule
	Own    *bpf.Object
	// Beside makes the program join the dispatcher of libxdp on the interface, with this run
	// priority; programs of lower priorities run first. Nil: the program takes the interface for
	// itself, or Open fails.
	Beside *uint32
	// Rank is the position among the Interfaces of a device. The program asks the one of the lowest
	// rank first whether it takes a packet.
	Rank int
	// Alone forbids others to share the interface: packets land in memory that may get only those of this one.
	Alone bool
	// Thread runs a function on the thread of the Holders' Books and waits for it, if several
	// Interfaces share a device. Nil: the goroutine that opens and closes them is on that thread.
	Thread func(func() error) error
	// Mode is where the program runs; default: in the driver if possible.
	Mode bpf.Mode
	// NoProgram leaves the interface's XDP program to the caller, which puts the
	// ports' FDs into an XSKMAP.
	NoProgram bool

	// BindTimeout is how long Open waits for a queue that is taken, and Close for a queue that the
	// device may still use. The kernel frees a queue some time after its last socket was closed:
	// mostly within 50 ms, on a loaded machine only after about two seconds. Default five seconds.
	BindTimeout time.Duration

	reserve uint32 // frames that a port always keeps with the kernel, see suit; 0: none
}

// BusyPoll configures the kernel's busy polling (Documentation/networking/napi.rst).
type BusyPoll struct {
	Time   time.Duration // how long one Kick may poll, whole microseconds; 0: off
	Budget int           // packets per poll; default 64
}

func (c *Config) complete() error {
	if c.RingSize == 0 {
		c.RingSize = 4096
	}
	if c.FillSize == 0 {
		c.FillSize = c.RingSize
	}
	if c.BindTimeout == 0 {
		c.BindTimeout = 5 * time.Second
	}
	if c.BusyPoll.Budget == 0 {
		c.BusyPoll.Budget = 64
	}
	return c.check()
}

func (c *Config) check() error {
	switch {
	case c.Interface == "":
		return errors.New("no interface given")
	case c.Holder == nil:
		return errors.New("no holder given to take frames from")
	case c.Direction > Send:
		return fmt.Errorf("direction %d: it must be Both, Receive or Send", c.Direction)
	case c.Policy == Require && c.Mode == bpf.Generic:
		return fmt.Errorf("%w in generic mode (use driver mode, or set the zero-copy policy to copy)", ErrNoZeroCopy)
	case c.Timestamps && c.Unstamped:
		return errors.New("arrival times are asked for and not wanted: set one of Timestamps and Unstamped")
	case c.Direction != Send && (c.Lent || c.Shape.Unaligned):
		return errors.New("memory that is lent, and packets across frames, are for ports that only send: set Direction to Send")
	case c.SendTimes && (c.Direction != Send || c.Lent || c.Gather || c.Shape.Unaligned):
		return errors.New("times of sent packets are for ports that only send frames of their own: set Direction to Send, without Lent, Gather and Unaligned")
	case c.Lent && c.Gather:
		return errors.New("parts of packets are their owners', or of memory that is lent: set one of Gather and Lent")
	case c.CardClock > RequireCard, c.CardClock != SystemOnly && !c.Timestamps:
		return fmt.Errorf("%v without arrival times: set Timestamps", c.CardClock)
	case !goodRing(c.RingSize):
		return fmt.Errorf("ring size %d: %w", c.RingSize, errRingSize)
	case !goodRing(c.FillSize):
		return fmt.Errorf("fill ring size %d: %w", c.FillSize, errRingSize)
	}
	if err := c.Shape.Check(c.region().FrameSize()); err != nil {
		return err
	}
	return c.checkHolders()
}

var errRingSize = errors.New("it must be a power of two from 4 to 131072")

func goodRing(n uint32) bool { return bits.OnesCount32(n) == 1 && n >= 4 && n <= 1<<17 }

func (c *Config) checkHolders() error {
	for queue, h := range c.Holders {
		if h.Book().Region() != c.region() {
			return fmt.Errorf("holder %s of queue %d is of another region", h.Name(), queue)
		}
	}
	return nil
}

func (c *Config) selection() bpf.Selection {
	return bpf.Selection{Filter: c.Filter, Rules: c.Rules, Own: c.Own}
}

func (c *Config) region() *umem.Region { return c.Holder.Book().Region() }

func (c *Config) holder(queue uint32) *umem.Holder {
	if h := c.Holders[queue]; h != nil {
		return h
	}
	return c.Holder
}

// ownProgram reports whether Open loads and attaches the program.
func (c *Config) ownProgram() bool { return !c.NoProgram && c.Direction.receives() }

// choose returns which of the interface's queues to bind, and which stay with the kernel.
func (c *Config) choose(available uint32) (bind, rest []uint32, err error) {
	for q := range available {
		if len(c.Queues) == 0 || slices.Contains(c.Queues, q) {
			bind = append(bind, q)
		} else {
			rest = append(rest, q)
		}
	}
	for i, q := range c.Queues {
		if q >= available {
			return nil, nil, fmt.Errorf("%s has no queue %d, only 0 to %d", c.Interface, q, available-1)
		}
		if slices.Contains(c.Queues[:i], q) {
			return nil, nil, fmt.Errorf("queue %d is listed twice", q)
		}
	}
	return bind, rest, nil
}

// Policy says which way of getting packets into frames is acceptable.
type Policy uint8

const (
	// Prefer uses zero copy if the driver supports it, else copies.
	Prefer Policy = iota
	// Require takes zero copy or fails.
	Require
	// Copy makes the kernel copy, even if the driver supports zero copy.
	Copy
)

var policyNames = [...]string{Prefer: "prefer", Require: "require", Copy: "copy"}

// String returns the policy's name in configuration files.
func (p Policy) String() string {
	if int(p) >= len(policyNames) {
		return fmt.Sprintf("policy %d", p)
	}
	return policyNames[p]
}

// ParsePolicy is the reverse of String.
func ParsePolicy(s string) (Policy, error) {
	for p, name := range policyNames {
		if s == name {
			return Policy(p), nil
		}
	}
	return 0, fmt.Errorf("zero-copy policy %q: it must be require, prefer or copy", s)
}

// limits returns what a port accepts.
func (c *Config) limits(g Granted, d *device) umem.Limits {
	l := umem.Limits{Frames: maxFrames(g, d)}
	l.Message = min(uint64(l.Frames)*uint64(c.chunk()), uint64(d.mtu)+sendOverhead)
	if c.Direction.receives() {
		l.Supply = int(c.FillSize)
		if c.reserve > 0 {
			l.Supply = int(c.reserve + margin)
		}
	}
	if c.Direction.sends() {
		l.Send = int(c.RingSize)
	}
	return l
}

// maxFrames is the largest number of frames of one sent packet. The kernel would count and drop a longer
// chain (xsk_build_skb in net/xdp/xsk.c, and with zero copy xskq_cons_read_desc_batch in xsk_queue.h).
func maxFrames(g Granted, d *device) int {
	switch {
	case !g.MultiBuffer:
		return 1
	case g.ZeroCopy:
		return max(1, min(int(d.zcSegments), maxFrags))
	}
	return maxFrags
}

// maxFrags is the smallest value of CONFIG_MAX_SKB_FRAGS.
const maxFrags = 17

// sendOverhead is how many bytes an Ethernet frame may have beyond the MTU for devices to accept
// it: the header and one VLAN tag (is_skb_forwardable in net/core/dev.c).
const sendOverhead = 14 + 4

// Some drivers must never find the fill ring empty. If that happens at the end of its ring, igb
// (Linux 6.14 and later, igb_alloc_rx_buffers_zc) leaves the length of the next descriptor
// unchanged. It then takes that descriptor and all later ones for packets that have just arrived,
// and passes on frames that have another owner by then.
//
// With such a driver a port keeps a reserve with the kernel: as many frames as the card's ring and the rx
// ring hold. Packets that are not taken from the rx ring in time are then lost because it is full, never
// for lack of frames. The port tells the driver not to wait for wake-ups. Otherwise the driver keeps the
// frame of a packet that did not fit, which the kernel has freed as well (xsk_rcv_zc in net/xdp/xsk.c).
//
// igb does not receive packets longer than the number of whole KiB that are left of a frame. KiB
// are the unit of its registers (SRRCTL.BSIZEPACKET). It passes on the parts as packets.

// suit adapts the configuration to a way of binding on this device, or returns why it is
// impossible.
func (c *Config) suit(a attempt, d *device) error {
	if !a.zeroCopy || !c.Direction.receives() || d.driver(c.Interface) != "igb" {
		return nil
	}
	if room := int(c.frameRoom() &^ 1023); d.mtu+linkOverhead > room {
		return fmt.Errorf("the card counts its room in KiB, and in frames of %d bytes has %d of them: not enough for packets of MTU %d",
			c.region().FrameSize(), room, d.mtu)
	}
	c.reserve = c.RingSize + d.cardRing(c.Interface)
	c.FillSize = 1 << bits.Len32(c.reserve+margin-1)
	c.AlwaysWake = true
	return nil
}

// margin is how many frames a port takes beyond its reserve. It can return that many before it must
// be supplied again.
const margin = 256

// driver returns the driver's name, empty if it is not known.
func (d *device) driver(name string) string {
	info, err := unix.IoctlGetEthtoolDrvinfo(d.ctl, name)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(info.Driver[:])
}

// cardRing returns how many descriptors each of the card's receive rings has.
func (d *device) cardRing(name string) uint32 {
	n, err := ringEntries(d.ctl, name)
	if err != nil {
		return mostEntries
	}
	return min(n, mostEntries)
}

// mostEntries is the largest size of igb's rings (IGB_MAX_RXD).
const mostEntries = 4096

// spare returns how many frames Recv may return. Once a port has its reserve, it keeps it until no
// more packets arrive.
func (p *Port) spare() uint32 {
	if p.fillAccount != nil && (!p.reserved || p.iface.stopped.Load()) {
		return p.supplied // not more than the port has supplied
	}
	if !p.reserved || p.iface.stopped.Load() {
		return maxBatch
	}
	return p.supplied - min(p.reserve, p.supplied)
}

// sendsAlone checks whether the driver serves sockets that only send, without a program on the
// interface. Drivers of Intel's cards have zero copy only with a program, and report that at the
// first wake-up (igb_xsk_wakeup, i40e_xsk_wakeup, ixgbe_xsk_wakeup).
func (c *Config) sendsAlone(a attempt, sockets []*socket) error {
	if !a.zeroCopy || c.Direction.receives() {
		return nil
	}
	_, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(sockets[0].fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	if errno == unix.EINVAL || errno == unix.ENXIO {
		return fmt.Errorf("the driver sends so only beside an XDP program: %w", errno)
	}
	return nil
}
