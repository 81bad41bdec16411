package main

import (
	"encoding/binary"
	"fmt"

	"github.com/unifiedd/unifiedd/selftests/harness"
	"github.com/unifiedd/unifiedd/umem"
)

// checker writes blocks that contain their place and the time of writing, and checks blocks that
// were read. It keeps four bytes for each block of the range.
type checker struct {
	seed    uint64
	block   uint64   // bytes of a block
	written []uint32 // by block number: its latest sequence, 0 if this run did not write it; plus inFlight
	last    uint32   // the last sequence in use
	checked uint64   // blocks read and found correct
}

// inFlight marks a block that is being written: two writes of a block at the same time leave
// unpredictable contents.
const inFlight = 1 << 31

// The header of a block determines the bytes that follow it.
const (
	magicAt    = 0  // eight bytes
	placeAt    = 8  // offset on the target, in bytes
	blockAt    = 16 // bytes of the block
	sequenceAt = 24
	seedAt     = 32
	bodyAt     = 40
)

var magic = [8]byte{'u', 'n', 'i', 'f', 'i', 'e', 'd', '1'}

func newChecker(o options, blocks uint64) *checker {
	c := &checker{seed: o.seed, block: uint64(o.block)}
	c.written = make([]uint32, blocks)
	return c
}

// begin prepares an operation: it fills a block to be written, and clears memory to be read into.
// It returns the number of the block to use, which is the next one that is not in flight.
func (c *checker) begin(r *umem.Region, chain []umem.Frame, number uint64, read bool) uint64 {
	if read {
		for _, f := range chain {
			clear(r.Bytes(f))
		}
		return number
	}
	for c.written[number]&inFlight != 0 {
		if number++; number == uint64(len(c.written)) {
			number = 0
		}
	}
	if c.last++; c.last == inFlight {
		c.last = 1
	}
	c.written[number] = c.last | inFlight
	c.make(r, chain, number)
	return number
}

// end records a finished write and checks a finished read.
func (c *checker) end(r *umem.Region, chain []umem.Frame, number uint64, read bool) error {
	if !read {
		c.written[number] &^= inFlight
		return nil
	}
	c.checked++
	return c.compare(r, chain, number)
}

// back returns a plan that reads every block that this run has written, in order.
func (c *checker) back() *plan {
	p := &plan{block: c.block, blocks: uint64(len(c.written)), reads: 1 << 32, only: c.written}
	for _, sequence := range c.written {
		if sequence != 0 {
			p.left++
		}
	}
	return p
}

// make writes a block into the frames.
func (c *checker) make(r *umem.Region, chain []umem.Frame, number uint64) {
	sequence := uint64(c.written[number] &^ inFlight)
	for i, f := range chain {
		b, from := r.Bytes(f), 0
		if i == 0 {
			from = bodyAt
			copy(b[magicAt:], magic[:])
			binary.LittleEndian.PutUint64(b[placeAt:], number*c.block)
			binary.LittleEndian.PutUint64(b[blockAt:], c.block)
			binary.LittleEndian.PutUint64(b[sequenceAt:], sequence)
			binary.LittleEndian.PutUint64(b[seedAt:], c.seed)
		}
		seed, n := body(c.seed, number, sequence, i)
		harness.Fill(b[from:], seed, n)
	}
}

// compare compares the bytes read with the block's contents. A block that this run has not written
// may be from any earlier run.
func (c *checker) compare(r *umem.Region, chain []umem.Frame, number uint64) error {
	at := number * c.block
	head := r.Bytes(chain[0])
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(head[at:]) }
	sequence, want := word(sequenceAt), uint64(c.written[number])
	switch {
	case [8]byte(head[:8]) != magic:
		return fmt.Errorf("verify: at %d there is no block written with -verify: it begins with %x", at, head[:16])
	case word(blockAt) != c.block:
		return fmt.Errorf("verify: at %d there is a block written with -bs %d: read it with that", at, word(blockAt))
	case word(placeAt) != at:
		return fmt.Errorf("verify: at %d there is the block that belongs at %d", at, word(placeAt))
	case want != 0 && sequence != want:
		return fmt.Errorf("verify: at %d there is what was written as number %d: number %d, written later, is lost", at, sequence, want)
	}
	return c.compareBody(r, chain, number, sequence, word(seedAt))
}

// compareBody compares every byte after the header.
func (c *checker) compareBody(r *umem.Region, chain []umem.Frame, number, sequence, seed uint64) error {
	for i, f := range chain {
		b, from := r.Bytes(f), 0
		if i == 0 {
			from = bodyAt
		}
		seed, n := body(seed, number, sequence, i)
		if wrong := harness.Differs(b[from:], seed, n); wrong >= 0 {
			return fmt.Errorf("verify: byte %d of the block at %d is wrong, of write number %d", i*int(chain[0].Len)+from+wrong, number*c.block, sequence)
		}
	}
	return nil
}

// body returns what harness.Fill takes for the bytes of a block's frame after the header.
func body(seed, number, sequence uint64, frame int) (uint64, uint64) {
	return seed ^ sequence<<32, number<<10 | uint64(frame) // a block has at most 1024 frames
}
