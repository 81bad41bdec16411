package main

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/selftests/harness"
	"github.com/unifiedd/unifiedd/umem"
)

const (
	frameSize = 4096
	control   = 2 << 20 // bytes for the rings
)

// session has a region, a queue on it and the target in the queue, opened as a user of the packages
// opens them.
type session struct {
	region  *umem.Region
	book    *umem.Book
	worker  *umem.Holder
	queue   *nvme.Queue
	target  *nvme.Target
	number  uint32 // the target's in the queue
	blocks  []umem.Frame
	pieces  int // frames of a block
	cleanup harness.Cleanup
}

// need has the requirements of a session.
type need struct {
	block uint64 // bytes of an operation
	depth int    // operations at a time
	piece uint64 // bytes of each frame of a gathered block; zero: one frame or extent
}

// open makes a session. The caller closes it.
func open(o options, n need) (s *session, err error) {
	s = &session{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.cleanup.Close())
			s = nil
		}
	}()
	if err := s.openRegion(o, n); err != nil {
		return s, err
	}
	if err := s.openTarget(o); err != nil {
		return s, err
	}
	return s, s.openQueue(n)
}

// openRegion opens a region with exactly enough room for the blocks.
func (s *session) openRegion(o options, n need) error {
	c := n.region()
	c.Pages = umem.PageSize(o.pages)
	var err error
	if s.region, err = s.cleanup.OpenRegion(c, o.reserve, harness.MemoryRemedy); err != nil {
		return err
	}
	s.book, s.worker, err = s.cleanup.OpenHolder(s.region, "unified-nvme-test")
	return err
}

// region returns the configuration of the region for the blocks.
func (n need) region() umem.Config {
	c := umem.Config{FrameSize: frameSize, Control: control}
	switch blocks := uint64(n.depth); {
	case n.piece > 0:
		c.Size = blocks * (n.block / n.piece) * frameSize
	case n.block <= frameSize:
		c.Size = blocks * frameSize
	default:
		c.ExtentSize = 1 << bits.Len64(n.block-1)
		c.Extents = blocks
		c.Size = (blocks + 1) * c.ExtentSize // a region has frames too, up to the first place of an extent
	}
	return c
}

// openQueue opens the queue, adds the target, and takes the blocks.
func (s *session) openQueue(n need) error {
	s.pieces = 1
	if n.piece > 0 {
		s.pieces = int(n.block / n.piece)
	}
	var err error
	c := nvme.Config{Worker: s.worker, Depth: n.depth, Frames: n.depth * s.pieces, Pieces: s.pieces, Targets: 1,
		Passthrough: s.target.Passthrough()}
	if s.queue, err = nvme.Open(c); err != nil {
		return err
	}
	s.cleanup.Then(s.queue.Close)
	if s.number, err = s.queue.Add(s.target); err != nil {
		return err
	}
	return s.takeBlocks(n)
}

// takeBlocks takes the frames or extents from the pool. Each has its length within a block, and
// those of a gathered block form a chain.
func (s *session) takeBlocks(n need) error {
	s.blocks = make([]umem.Frame, n.depth*s.pieces)
	take, length := s.worker.Take, n.block
	if n.piece > 0 {
		length = n.piece
	} else if n.block > frameSize {
		take = s.worker.TakeExtents
	}
	if got := take(s.blocks); got != len(s.blocks) {
		return fmt.Errorf("take %d blocks from the region: there are only %d", len(s.blocks), got)
	}
	for i := range s.blocks {
		s.blocks[i].Len = uint32(length)
		if (i+1)%s.pieces != 0 {
			s.blocks[i].Options |= umem.More
		}
	}
	return nil
}
