package target

import (
	"github.com/unifiedd/unifiedd/nvme/fabrics"
	"github.com/unifiedd/unifiedd/umem"
)

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

// share is how many times as much as is free a disk may have of what all disks have in common: buffers, and places in the disks' queue. So a disk that
// does not answer takes three quarters, the next one three quarters of what is left, and there is always something for the others.
const share = 3

// within reports whether a disk that has so many may have another one.
func within(has, free int) bool { return has < share*free }

// waitQueue is operations that wait for a disk's share, in the order in which they came. Each is in one line at most.
type waitQueue struct {
	first, last int32
	len         int
}

// push puts an operation at the end.
func (s *Server) push(l *waitQueue, o *operation) {
	o.behind = none
	if l.len == 0 {
		l.first = o.number
	} else {
		s.operations[l.last].behind = o.number
	}
	l.last = o.number
	l.len++
	s.inLine++
}

// pop takes the first one, of a line that has one.
func (s *Server) pop(l *waitQueue) *operation {
	o := &s.operations[l.first]
	l.first = o.behind
	l.len--
	s.inLine--
	return o
}

// cancelWaiting takes all that are of a seat.
func (s *Server) cancelWaiting(l *waitQueue, p *session) {
	for range l.len {
		if o := s.pop(l); o.session != p {
			s.push(l, o)
		}
	}
}

// feed goes on with operations whose disks may have more, and returns how many there were.
func (s *Server) feed() (n int) {
	if s.inLine == 0 {
		return 0
	}
	for _, d := range s.disks {
		n += s.feedDisk(d)
		for d.unplaced.len > 0 && within(d.moving, s.config.Disk-s.moves) {
			n++
			if o := s.pop(&d.unplaced); o.session.state == sessionOpen {
				s.place(o)
			}
		}
	}
	s.emptied = false
	return n
}

// feedDisk goes on with those that wait for buffers: from the first on while the disk may have more, and, where sessions have none any more, with the first of each.
func (s *Server) feedDisk(d *disk) (n int) {
	for tries := d.waiting.len; tries > 0 && (s.emptied || !s.overShare(&s.operations[d.waiting.first])); tries-- {
		switch o := s.pop(&d.waiting); {
		case o.session.state != sessionOpen: // leave finishes it
		case s.overShare(o):
			s.push(&d.waiting, o)
		default:
			n++
			s.need(o, o.needs[0], o.needs[1])
		}
	}
	return n
}

// charge counts the buffers of an operation as its disk's, and discharge ends that: a host that does not take what it is given is not the disk's fault.
func (s *Server) charge(o *operation) {
	if o.disk != nil {
		o.charged = true
		s.chargeOperation(o, 1)
	}
}

func (s *Server) discharge(o *operation) {
	if o.charged {
		o.charged = false
		s.chargeOperation(o, -1)
	}
}

// chargeOperation adds to what the disk has of each pile.
func (s *Server) chargeOperation(o *operation, one int) {
	for _, n := range o.needs {
		if n > 0 {
			o.disk.held[s.kindFor(n)] += one
		}
	}
}

// overShare reports whether an operation has to wait for buffers because its disk has its share. The first one of a session is the session's own.
func (s *Server) overShare(o *operation) bool {
	if o.disk == nil {
		return false
	}
	for _, n := range o.needs {
		k := s.kindFor(n)
		if p := &s.pools[k]; n > 0 && p.held[o.session.number] > 0 && p.spare() > 0 && !within(o.disk.held[k], p.spare()) {
			return true
		}
	}
	return false
}

// place gives the disks' queue a frame of an operation, or has it wait until its disk may have another place there.
func (s *Server) place(o *operation) {
	d := o.disk
	if !within(d.moving, s.config.Disk-s.moves) {
		o.state = opInLine
		s.push(&d.unplaced, o)
		return
	}
	d.moving++
	s.moves++
	l, i := &s.out.reads, 1
	switch {
	case o.command.Opcode != fabrics.OpWrite:
	case o.command.FUA():
		l, i = &s.out.durable, 0
	default:
		l, i = &s.out.writes, 0
	}
	*l = append(*l, s.toDisk(o, i))
}
