package target

import "github.com/unifiedd/unifiedd/umem"

// bufferPool is the buffers of one size that nobody uses, and who uses the others.
type bufferPool struct {
	size    uint64
	free    []umem.Frame // a stack
	held    []int        // by session
	waiting int          // sessions that are taken and hold none
}

// open counts a session that is taken, and is sure of one buffer; shut one that is not any more, and holds none.
func (p *bufferPool) open() { p.waiting++ }
func (p *bufferPool) shut() { p.waiting-- }

// spare is how many are free beyond those for sessions that have none. It is below zero where sessions were taken after others had taken more than they would have been given then.
func (p *bufferPool) spare() int { return len(p.free) - p.waiting }

// take is a buffer for a session: the first while there is one, and another unless those left are for sessions that have none.
func (p *bufferPool) take(seat int) (umem.Frame, bool) {
	first := p.held[seat] == 0
	if len(p.free) == 0 || !first && p.spare() <= 0 {
		return umem.Frame{}, false
	}
	if first {
		p.waiting--
	}
	p.held[seat]++
	last := len(p.free) - 1
	f := p.free[last]
	p.free = p.free[:last]
	return f, true
}

// give takes a buffer back from a seat.
func (p *bufferPool) give(seat int, f umem.Frame) {
	p.free = append(p.free, f)
	if p.held[seat]--; p.held[seat] == 0 {
		p.waiting++
	}
}
