package target

import "github.com/unifiedd/unifiedd/umem"

// pile is the buffers of one size that nobody uses, and who uses the others.
type pile struct {
	size uint64
	free []umem.Frame // a stack
	held []int        // by seat
	poor int          // seats that are taken and hold none
}

// open counts a seat that is taken, and is sure of one buffer; shut one that is not any more, and holds none.
func (p *pile) open() { p.poor++ }
func (p *pile) shut() { p.poor-- }

// spare is how many are free beyond those for seats that have none. It is below zero where seats were taken after others had taken more than they would have been given then.
func (p *pile) spare() int { return len(p.free) - p.poor }

// take is a buffer for a seat: the first while there is one, and another unless those left are for seats that have none.
func (p *pile) take(seat int) (umem.Frame, bool) {
	first := p.held[seat] == 0
	if len(p.free) == 0 || !first && p.spare() <= 0 {
		return umem.Frame{}, false
	}
	if first {
		p.poor--
	}
	p.held[seat]++
	last := len(p.free) - 1
	f := p.free[last]
	p.free = p.free[:last]
	return f, true
}

// give takes a buffer back from a seat.
func (p *pile) give(seat int, f umem.Frame) {
	p.free = append(p.free, f)
	if p.held[seat]--; p.held[seat] == 0 {
		p.poor++
	}
}
