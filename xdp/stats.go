package xdp

import (
	"fmt"

	"github.com/unifiedd/unifiedd/umem"
)

// Traffic counts one direction of a port.
type Traffic struct {
	Packets, Frames, Bytes uint64
}

// Stats are a port's counters since it was opened.
type Stats struct {
	Received  Traffic // given by Recv
	Sent      Traffic // taken by Send, without what it refused
	Stamped   uint64  // packets given by Recv with a time of the card's clock
	Completed uint64  // frames the kernel was done with
	Refused   uint64  // frames Send took that Reap gives back Failed
	Wakeups   uint64  // system calls made by Kick
	Waiting   uint64  // packets in the rx ring that Recv has not given yet
	Kernel    KernelStats
}

// KernelStats are what XDP_STATISTICS says. How they overlap, from net/xdp/xsk.c
// and xsk_buff_pool.c:
//
// In copy mode a packet that finds too few frames in the fill ring counts once in
// Dropped, and, where it found none at all, once in FillEmpty too. A packet longer
// than a frame on a socket without multi-buffer counts in Dropped alone. A packet
// that finds the rx ring full counts in RingFull alone. So Dropped + RingFull
// are the packets lost.
//
// With zero copy FillEmpty counts the driver's fruitless visits to the ring, not
// packets; what the device lost for lack of frames only its own counters say.
type KernelStats struct {
	Dropped       uint64 // packets: rx_dropped
	RingFull      uint64 // packets: rx_ring_full
	FillEmpty     uint64 // visits: rx_fill_ring_empty_descs
	RxInvalid     uint64 // descriptors: rx_invalid_descs, zero on all kernels so far
	TxInvalid     uint64 // descriptors the kernel refused: tx_invalid_descs
	TxEmptyVisits uint64 // visits of a driver that found nothing to send: tx_ring_empty_descs
}

// Stats reads the port's counters. It may be called from any goroutine, also
// after Close, when it says what was last.
func (p *Port) Stats() (Stats, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return p.final, nil
	}
	return p.stats()
}

// stats reads the counters; the port is open and p.mu held.
func (p *Port) stats() (Stats, error) {
	s := Stats{
		Received:  p.counters.received.load(),
		Sent:      p.counters.sent.load(),
		Stamped:   p.counters.stamped.load(),
		Completed: p.counters.completed.load(),
		Refused:   p.counters.refused.load(),
		Wakeups:   p.counters.wakeups.load(),
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

// waiting counts the packets in an rx ring from outside its thread. Slots between
// the two indices are only read, by the port's thread; those it takes out meanwhile
// the kernel may write, which makes the count a moment older.
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

// lost sorts what the kernel lost between the program and the port.
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
