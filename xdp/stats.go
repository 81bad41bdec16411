package xdp

import (
	"fmt"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/umem"
)

// Traffic counts one direction of a port.
type Traffic struct {
	Packets, Frames, Bytes uint64
}

// Stats are a port's counters since it was opened.
type Stats struct {
	Received  Traffic // returned by Recv
	Sent      Traffic // taken by Send, without what it refused
	Stamped   uint64  // packets returned by Recv with a time of the card's clock
	Completed uint64  // frames that the kernel has completed
	Refused   uint64  // frames that Send took and Reap returns with Failed set
	Wakeups   uint64  // system calls made by Kick, SendNow and Rehearse
	Waiting   uint64  // packets in the rx ring that Recv has not returned yet
	Kernel    KernelStats
}

// KernelStats are the counters of XDP_STATISTICS. How they overlap, from net/xdp/xsk.c and xsk_buff_pool.c:
//
// In copy mode a packet that finds too few frames in the fill ring counts once in Dropped. If it
// found none at all, it counts once in FillEmpty too. A packet longer than a frame on a socket
// without multi-buffer counts only in Dropped. A packet that finds the rx ring full counts only in
// RingFull. So Dropped + RingFull are the lost packets.
//
// With zero copy FillEmpty counts how often the driver found the ring empty, and not packets. Only
// the device's own counters say what it lost for lack of frames.
type KernelStats struct {
	Dropped       uint64 // packets: rx_dropped
	RingFull      uint64 // packets: rx_ring_full
	FillEmpty     uint64 // visits: rx_fill_ring_empty_descs
	RxInvalid     uint64 // descriptors: rx_invalid_descs, zero on all kernels so far
	TxInvalid     uint64 // descriptors that the kernel refused: tx_invalid_descs
	TxEmptyVisits uint64 // visits of a driver that found nothing to send: tx_ring_empty_descs
}

// Stats reads the port's counters. Any goroutine may call it. After Close it returns the last values.
func (p *Port) Stats() (Stats, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return p.final, nil
	}
	return p.stats()
}

// stats reads the counters. The port is open and the caller holds p.mu.
func (p *Port) stats() (Stats, error) {
	s := Stats{
		Received:  p.counters.received.load(),
		Sent:      p.counters.sent.load(),
		Stamped:   p.counters.stamped.Load(),
		Completed: p.counters.completed.Load(),
		Refused:   p.counters.refused.Load(),
		Wakeups:   p.counters.wakeups.Load(),
	}
	if p.limits.Supply > 0 {
		s.Waiting = waiting(&p.rings.rx)
	}
	k, err := kernelStatistics(p.socket.fd)
	if err != nil {
		return s, fmt.Errorf("read statistics of %s queue %d: %w", p.iface.Name(), p.socket.queue, err)
	}
	s.Kernel = KernelStats{
		Dropped: k.Rx_dropped, RingFull: k.Rx_ring_full, FillEmpty: k.Rx_fill_ring_empty_descs,
		RxInvalid: k.Rx_invalid_descs, TxInvalid: k.Tx_invalid_descs, TxEmptyVisits: k.Tx_ring_empty_descs,
	}
	return s, nil
}

// waiting counts the packets in an rx ring from another thread. Only the port's thread and this
// function read the slots between the two indices. The kernel may overwrite slots that the thread
// releases during the call, so the count may be slightly old.
func waiting(r *incoming[umem.Frame]) (packets uint64) {
	from := r.consumer.Load()
	for n := min(r.producer.Load()-from, r.size); n > 0; n-- {
		if !r.slots[from&(r.size-1)].Continues() {
			packets++
		}
		from++
	}
	return packets
}

// lost splits the packets that the kernel lost between the program and the port by cause.
func (s *Stats) lost(g Granted) (ringFull, noFrames, tooLong uint64) {
	noFrames = s.Kernel.Dropped
	switch {
	case g.ZeroCopy:
		noFrames = 0
	case !g.MultiBuffer:
		noFrames = min(s.Kernel.Dropped, s.Kernel.FillEmpty)
	}
	return s.Kernel.RingFull, noFrames, s.Kernel.Dropped - noFrames
}

// flow counts one direction, once per batch. Most packets have one frame. So flow counts only the
// further frames of the others, which saves writing a word.
type flow struct{ packets, further, bytes counter.Counter }

func (f *flow) add(packets, frames, bytes uint64) {
	if packets > 0 {
		f.packets.Add(packets)
	}
	if frames != packets { // negative if a batch has only the end of a packet
		f.further.Add(frames - packets)
	}
	f.bytes.Add(bytes)
}

func (f *flow) load() Traffic {
	packets := f.packets.Load()
	return Traffic{Packets: packets, Frames: packets + f.further.Load(), Bytes: f.bytes.Load()}
}

// counters are the port's own counters.
type counters struct {
	received, sent flow
	stamped        counter.Counter
	completed      counter.Counter
	refused        counter.Counter
	wakeups        counter.Counter
}

// Ledger counts every packet that arrived at an interface since it was opened. Offered is their
// number, and each has one Reason. Packets that the sender's end dropped, for example the other end
// of a veth pair, did not arrive. The counters of that end have them.
type Ledger struct {
	// Offered is what the device lost plus what the program received, by the counters of both.
	Offered uint64
	by      [reasons]uint64
}

// Of returns the number of packets with one reason.
func (l *Ledger) Of(r Reason) uint64 { return l.by[r] }

// Lost returns the number of packets whose reason is a loss ([Reason.IsLost]).
func (l *Ledger) Lost() (n uint64) {
	for _, r := range Reasons() {
		if r.IsLost() {
			n += l.by[r]
		}
	}
	return n
}

// Missing is Offered less the packets of every reason. It is zero at rest. While packets flow, the
// counters are of slightly different moments, and Missing is a few packets, of either sign.
func (l *Ledger) Missing() int64 {
	n := l.Offered
	for _, k := range l.by {
		n -= k
	}
	return int64(n)
}

// Ledger adds up the counters of the device, the program and the ports. After Close it returns the
// last ones. Any goroutine may call it.
func (i *Interface) Ledger() (Ledger, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return i.final, nil
	}
	return i.ledger()
}

func (i *Interface) ledger() (l Ledger, err error) {
	for _, p := range i.ports {
		s, err := p.Stats()
		if err != nil {
			return l, fmt.Errorf("ledger: %w", err)
		}
		l.addPort(&s, i.granted)
	}
	refused := l.by[LostRingFull] + l.by[LostNoFrames] + l.by[LostTooLong]
	if err := i.addProgram(&l, refused); err != nil {
		return l, fmt.Errorf("ledger of %s: %w", i.Name(), err)
	}
	if err := i.addDevice(&l); err != nil {
		return l, fmt.Errorf("ledger of %s: %w", i.Name(), err)
	}
	return l, nil
}

func (l *Ledger) addPort(s *Stats, g Granted) {
	ringFull, noFrames, tooLong := s.lost(g)
	l.by[Received] += s.Received.Packets
	l.by[Waiting] += s.Waiting
	l.by[LostRingFull] += ringFull
	l.by[LostNoFrames] += noFrames
	l.by[LostTooLong] += tooLong
}

// addProgram adds the program's verdicts. Without a program of this package only the sockets count
// what was offered to them.
func (i *Interface) addProgram(l *Ledger, refused uint64) error {
	if i.program == nil {
		l.Offered += l.by[Received] + l.by[Waiting] + refused
		return nil
	}
	all, err := i.seatCounters()
	if err != nil {
		return err
	}
	for seat := range all {
		c := all[seat].Since(i.since[seat])
		l.Offered += c.Total().Packets
		l.by[KernelNoMatch] += c[bpf.NoMatch].Packets
		if seat != i.seat {
			l.by[OtherFlow] += c.Total().Packets - c[bpf.NoMatch].Packets
			continue
		}
		l.by[KernelTooLong] = c[bpf.TooLong].Packets
		l.by[KernelNoSocket] = c[bpf.NoSocket].Packets
		l.by[KernelUnclear] = c[bpf.Unclear].Packets
		l.by[FilterDropped] = c[bpf.Dropped].Packets
	}
	return nil
}

// addDevice adds the losses before the program. The driver's counter includes packets that the
// sockets refused. After the interface is gone, the last known counters remain.
func (i *Interface) addDevice(l *Ledger) error {
	if s, err := i.device.look(); err == nil {
		i.lost = s.lost.since(i.before)
	}
	i.shared.mu.Lock()
	refused, err := i.shared.refused()
	i.shared.mu.Unlock()
	if err != nil {
		return err
	}
	refused -= min(i.refusedBefore, refused)
	l.by[LostMissed] = i.lost.missed
	l.by[LostDamaged] = i.lost.errors
	l.by[LostDriver] = i.lost.driver - min(refused, i.lost.driver)
	l.Offered += l.by[LostMissed] + l.by[LostDamaged] + l.by[LostDriver]
	return nil
}

// Unsent returns how many packets of any sender the device dropped or could not send since the
// interface was opened. Sockets do not learn of these packets, and count them as sent. After Close
// it returns the last number. It fails if the interface is gone.
func (i *Interface) Unsent() (uint64, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return i.unsent, nil
	}
	return i.countUnsent()
}

func (i *Interface) countUnsent() (uint64, error) {
	s, err := i.device.look()
	if err != nil {
		return 0, fmt.Errorf("count what %s did not send: %w", i.Name(), err)
	}
	return s.unsent - min(i.unsentBefore, s.unsent), nil
}

// Reason is the outcome of a packet that arrived at an interface.
type Reason uint8

// The reasons. Packets with a reason that begins with Kernel went to the kernel; those with one that
// begins with Lost were lost; FilterDropped were dropped on request.
const (
	// Received packets were returned by Recv.
	Received Reason = iota
	// Waiting packets are in an rx ring, and Recv will return them.
	Waiting
	// KernelNoMatch packets did not match the filter.
	KernelNoMatch
	// KernelTooLong packets were wanted, but longer than the sockets take.
	KernelTooLong
	// KernelNoSocket packets were wanted, but arrived at a queue without a port, or while the
	// interface was stopped.
	KernelNoSocket
	// KernelUnclear packets got an unknown verdict from the user's own program.
	KernelUnclear
	// OtherFlow packets matched the selection of another Interface of the device.
	OtherFlow
	// FilterDropped packets were dropped by a rule, or by the user's own program.
	FilterDropped
	// LostRingFull packets found the rx ring full: Recv is called too rarely.
	LostRingFull
	// LostNoFrames packets found no frame in the fill ring: Supply is called too
	// rarely, or with too few.
	LostNoFrames
	// LostTooLong packets were passed by the caller's own program to a socket that does not support
	// packets of several frames.
	LostTooLong
	// LostMissed packets found no room in the card (rx_missed_errors).
	LostMissed
	// LostDamaged packets the card refused as broken (rx_errors).
	LostDamaged
	// LostDriver packets the driver dropped before the program saw them.
	LostDriver

	reasons
)

var reasonNames = [reasons]string{
	Received:       "received",
	Waiting:        "waiting",
	KernelNoMatch:  "kernel_no_match",
	KernelTooLong:  "kernel_too_long",
	KernelNoSocket: "kernel_no_socket",
	KernelUnclear:  "kernel_unclear",
	OtherFlow:      "other_flow",
	FilterDropped:  "filter_dropped",
	LostRingFull:   "lost_ring_full",
	LostNoFrames:   "lost_no_frames",
	LostTooLong:    "lost_too_long",
	LostMissed:     "lost_missed",
	LostDamaged:    "lost_damaged",
	LostDriver:     "lost_driver",
}

// String returns the reason's name in metrics.
func (r Reason) String() string {
	if r >= reasons {
		return fmt.Sprintf("reason %d", r)
	}
	return reasonNames[r]
}

// IsLost reports whether the device, its driver or the socket lost the packet. Packets that were
// left to the kernel, that another Interface took or that were dropped on request are not lost.
func (r Reason) IsLost() bool { return r >= LostRingFull }

// Reasons lists every reason.
func Reasons() []Reason {
	out := make([]Reason, reasons)
	for i := range out {
		out[i] = Reason(i)
	}
	return out
}
