package xdp

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/release"
	"github.com/unifiedd/unifiedd/umem"
)

// rings are the four rings of one socket. Those of an unused direction stay zero. The kernel still
// requires a fill and a completion ring, which then have the smallest size and are not mapped.
type rings struct {
	fill       *outgoing[uint64]
	rx         incoming[umem.Frame]
	tx         outgoing[umem.Frame]
	completion incoming[uint64]
	borrowed   bool // the fill ring belongs to another socket
}

// unusedRing is the size of a ring that the kernel requires and this package does not use.
const unusedRing = 1

// sizeRings asks the kernel for rings on a fresh socket.
func (c *Config) sizeRings(fd int) error {
	fill, completion := uint32(unusedRing), uint32(unusedRing)
	if c.Direction.receives() {
		fill = c.FillSize
		if err := setInt(fd, unix.XDP_RX_RING, c.RingSize); err != nil {
			return fmt.Errorf("make rx ring of %d: %w", c.RingSize, err)
		}
	}
	if c.Direction.sends() {
		completion = c.RingSize
		if err := setInt(fd, unix.XDP_TX_RING, c.RingSize); err != nil {
			return fmt.Errorf("make tx ring of %d: %w", c.RingSize, err)
		}
	}
	if err := setInt(fd, unix.XDP_UMEM_FILL_RING, fill); err != nil {
		return fmt.Errorf("make fill ring of %d: %w", fill, err)
	}
	if err := setInt(fd, unix.XDP_UMEM_COMPLETION_RING, completion); err != nil {
		return fmt.Errorf("make completion ring of %d: %w", completion, err)
	}
	return nil
}

// mapFrom maps the rings that sizeRings made. After an error the caller unmaps those that were
// mapped.
func (r *rings) mapFrom(c *Config, fd int) error {
	r.fill = new(outgoing[uint64])
	off, err := mmapOffsets(fd)
	if err != nil {
		return fmt.Errorf("ask for their offsets: %w", err)
	}
	if c.Direction.receives() {
		if r.fill.ring, r.fill.slots, err = mapRing[uint64](fd, unix.XDP_UMEM_PGOFF_FILL_RING, off.Fr, c.FillSize); err != nil {
			return err
		}
		if r.rx.ring, r.rx.slots, err = mapRing[umem.Frame](fd, unix.XDP_PGOFF_RX_RING, off.Rx, c.RingSize); err != nil {
			return err
		}
	}
	if !c.Direction.sends() {
		return nil
	}
	if r.completion.ring, r.completion.slots, err = mapRing[uint64](fd, unix.XDP_UMEM_PGOFF_COMPLETION_RING, off.Cr, c.RingSize); err != nil {
		return err
	}
	r.tx.ring, r.tx.slots, err = mapRing[umem.Frame](fd, unix.XDP_PGOFF_TX_RING, off.Tx, c.RingSize)
	return err
}

// unmap unmaps the rings. No verb may run after it.
func (r *rings) unmap() error {
	err := errors.Join(r.rx.unmap(), r.tx.unmap(), r.completion.unmap())
	if r.fill != nil && !r.borrowed {
		err = errors.Join(err, r.fill.unmap())
	}
	return err
}

// unmap unmaps one ring. It does nothing for a ring without a mapping.
func (r *ring) unmap() error {
	if r.memory == nil {
		return nil
	}
	err := unix.Munmap(r.memory)
	*r = ring{}
	if err != nil {
		return fmt.Errorf("unmap ring: %w", err)
	}
	return nil
}

// giveUp unmaps a ring whose layout is invalid.
func (r *ring) giveUp(err error) error { return errors.Join(err, r.unmap()) }

// ring is the common part of the two kinds of rings. The words are in memory shared with the
// kernel: struct xdp_ring in net/xdp/xsk_queue.h. There the letters A to D name the barriers: loads
// that acquire, stores that release. Go's loads and package release are at least as strong.
type ring struct {
	memory []byte // the mapping

	// producer counts all entries ever put in. The producing side writes it after the slots (B).
	// The other side reads it before them (C).
	producer *atomic.Uint32
	// consumer counts all entries ever taken out. The consuming side writes it after it read the
	// slots (D). The other side reads it before it writes them (A).
	consumer *atomic.Uint32
	// The kernel writes flags: xsk_set_rx_need_wakeup and its siblings in net/xdp/xsk.c. We read it
	// after our producer store and a barrier. The kernel sets it and then checks the ring once
	// more, so one of the two sees the other.
	flags *atomic.Uint32

	size uint32 // slots, a power of two
}

// needsWakeup reports whether the kernel sleeps and wants a system call.
func (r *ring) needsWakeup() bool { return r.flags.Load()&unix.XDP_RING_NEED_WAKEUP != 0 }

// outgoing is a ring into which we put entries: fill and tx.
type outgoing[T any] struct {
	ring
	slots []T    // written by us, read by the kernel (xskq_cons_read_desc)
	next  uint32 // our own copy of producer
	seen  uint32 // consumer at the last look
}

// room returns how many slots are free, at most want. It reads the kernel's index only if the last
// reading does not suffice.
func (r *outgoing[T]) room(want uint32) uint32 {
	if r.free() < want {
		r.look()
	}
	return min(want, r.free())
}

// free returns how many slots were free at the last look.
func (r *outgoing[T]) free() uint32 { return r.size - (r.next - r.seen) }

// look reads how far the kernel has got.
func (r *outgoing[T]) look() { r.seen = r.consumer.Load() }

// set writes the slot i places after the published ones.
func (r *outgoing[T]) set(i uint32, v T) { r.slots[(r.next+i)&(r.size-1)] = v }

// publish shows n more slots to the kernel.
func (r *outgoing[T]) publish(n uint32) {
	r.next += n
	release.Store32(r.producer, r.next)
}

// left returns how many entries the kernel has not taken.
func (r *outgoing[T]) left() uint32 { return r.next - r.consumer.Load() }

// pending reports whether the kernel has not taken everything.
func (r *outgoing[T]) pending() bool { return r.consumer.Load() != r.next }

// incoming is a ring from which we take entries: rx and completion.
type incoming[T any] struct {
	ring
	slots []T    // written by the kernel (xskq_prod_reserve_desc), read by us
	next  uint32 // our own copy of consumer
}

// waiting returns how many slots are full, at most want.
func (r *incoming[T]) waiting(want uint32) uint32 {
	return min(want, r.producer.Load()-r.next, r.size)
}

// at reads the slot i places from the front.
func (r *incoming[T]) at(i uint32) T { return r.slots[(r.next+i)&(r.size-1)] }

// release gives n slots back to the kernel.
func (r *incoming[T]) release(n uint32) {
	r.next += n
	release.Store32(r.consumer, r.next)
}
