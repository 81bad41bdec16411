package nvmet

import (
	"github.com/unifiedd/unifiedd/nvme/fabrics"
	"github.com/unifiedd/unifiedd/umem"
)

// bufferPool holds the free buffers of one size, and counts those in use by session.
type bufferPool struct {
	size    uint64
	free    []umem.Frame // a stack
	held    []int        // by session
	waiting int          // sessions in use that hold none
}

// open counts a session that is in use, which is guaranteed one buffer. shut counts one less: a
// session that ends and holds none.
func (p *bufferPool) open() { p.waiting++ }
func (p *bufferPool) shut() { p.waiting-- }

// spare returns how many buffers are free in addition to those reserved for sessions without one.
// It is negative if a session has taken many buffers before other sessions come into use.
func (p *bufferPool) spare() int { return len(p.free) - p.waiting }

// take returns a buffer for a session: its first one if any is free, a further one only if it is
// not reserved for a session without one.
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

// give returns a buffer of a session.
func (p *bufferPool) give(seat int, f umem.Frame) {
	p.free = append(p.free, f)
	if p.held[seat]--; p.held[seat] == 0 {
		p.waiting++
	}
}

// share limits the use of shared resources by one disk to a multiple of the free ones. The
// resources are buffers and places in the disks' queue. A disk that does not answer takes three
// quarters, and the next one three quarters of the rest, so some always remain for the others.
const share = 3

// within reports whether a disk that uses has may use one more while free are free.
func within(has, free int) bool { return has < share*free }

// waitQueue is a FIFO of operations that wait for their disk's share. An operation is in at most
// one.
type waitQueue struct {
	first, last int32
	len         int
}

// push appends an operation.
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

// pop removes the first operation. The queue must not be empty.
func (s *Server) pop(l *waitQueue) *operation {
	o := &s.operations[l.first]
	l.first = o.behind
	l.len--
	s.inLine--
	return o
}

// cancelWaiting removes all operations of a session.
func (s *Server) cancelWaiting(l *waitQueue, p *session) {
	for range l.len {
		if o := s.pop(l); o.session != p {
			s.push(l, o)
		}
	}
}

// feed continues with operations whose disks may use more, and returns their number.
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

// feedDisk continues with operations that wait for buffers: in order while the disk may use more,
// and also the first of each session that holds no buffer.
func (s *Server) feedDisk(d *disk) (n int) {
	for tries := d.waiting.len; tries > 0 && (s.emptied || !s.overShare(&s.operations[d.waiting.first])); tries-- {
		switch o := s.pop(&d.waiting); {
		case o.session.state != sessionOpen: // Server.leave finishes it
		case s.overShare(o):
			s.push(&d.waiting, o)
		default:
			n++
			s.need(o, o.needs[0], o.needs[1])
		}
	}
	return n
}

// charge counts the buffers of an operation as used by its disk. discharge ends that when the disk
// is done: if the host does not accept its data, that must not count against the disk.
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

// chargeOperation adds one, or -1, to the disk's use of the pool of each buffer.
func (s *Server) chargeOperation(o *operation, one int) {
	for _, n := range o.needs {
		if n > 0 {
			o.disk.held[s.kindFor(n)] += one
		}
	}
}

// overShare reports whether an operation must wait for buffers because its disk uses its whole
// share. The first buffer of a session is always available.
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

// place passes a frame of an operation to the disks' queue. If the disk uses its whole share of the
// queue, the operation waits.
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
