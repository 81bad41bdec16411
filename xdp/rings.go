package xdp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// rings are the four rings of one socket. Those of a direction that is not used
// stay zero; the kernel demands a fill and a completion ring all the same, which
// then have the smallest size and are not mapped.
type rings struct {
	fill       *outgoing[uint64]
	rx         incoming[umem.Frame]
	tx         outgoing[umem.Frame]
	completion incoming[uint64]
	borrowed   bool // the fill ring is of another socket
}

// unusedRing is the size of a ring the kernel demands and nobody uses.
const unusedRing = 1

// size asks the kernel for rings on a fresh socket.
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

// mapFrom maps the rings that sizeRings made. On error the caller unmaps those
// that came about.
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

// unmap gives the mappings back. No verb may run after it.
func (r *rings) unmap() error {
	err := errors.Join(r.rx.unmap(), r.tx.unmap(), r.completion.unmap())
	if r.fill != nil && !r.borrowed {
		err = errors.Join(err, r.fill.unmap())
	}
	return err
}

// unmap gives one mapping back; a ring that has none is left alone.
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

// giveUp unmaps a ring whose layout makes no sense.
func (r *ring) giveUp(err error) error { return errors.Join(err, r.unmap()) }
