package main

import (
	"math/bits"
	"math/rand/v2"
)

// plan chooses the place of each operation.
type plan struct {
	block  uint64 // bytes of an operation
	blocks uint64 // in the range
	next   uint64 // of the sequence
	random bool
	left   uint64 // operations to start; less than the maximum of uint64 if the work is limited
	rnd    *rand.PCG
	reads  uint64   // of 1<<32, how many operations read; 1<<32: all
	only   []uint32 // of the sequence, skip blocks with a zero here; nil: skip none
}

// unlimited is the number of operations if time ends the work.
const unlimited = ^uint64(0)

func newPlan(o options, extent uint64) *plan {
	p := &plan{block: uint64(o.block), blocks: extent / uint64(o.block), random: o.random(), left: unlimited, rnd: rand.NewPCG(o.seed, 0)}
	if o.runtime == 0 {
		p.left = p.blocks
	}
	switch o.rw {
	case "read", "randread":
		p.reads = 1 << 32
	case "randrw":
		p.reads = uint64(o.mix) << 32 / 100
	}
	return p
}

// place chooses the number of the next block, and whether to read it.
func (p *plan) place() (block uint64, read bool) {
	p.left--
	if !p.random {
		return p.inOrder(), p.reads != 0
	}
	r := p.rnd.Uint64()
	block, _ = bits.Mul64(r, p.blocks) // the upper bits choose the block
	return block, r*0x9e3779b97f4a7c15>>32 < p.reads
}

// inOrder returns the next block of the sequence.
func (p *plan) inOrder() uint64 {
	for p.only != nil && p.only[p.next] == 0 {
		p.next++
	}
	block := p.next
	if p.next++; p.next == p.blocks {
		p.next = 0
	}
	return block
}
