package nvmet

import (
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/nvme/fabrics"
)

// reserving is the part of a server for persistent reservations.
type reserving struct {
	keeper       *keeper                // nil: there are none
	obeyed       atomic.Pointer[record] // that the server uses; the worker stores it
	acknowledged uint64                 // number of the record that the keeper was told of
	fenced       int                    // operations that arrived before, and that obeyed forbids
	waiting      []int32                // operations whose change or report has not begun
	change       *change                // in progress
	changing     int32                  // its operation
}

// openReservations opens the file of reservations.
func (s *Server) openReservations() (err error) {
	r := &s.reserving
	if s.config.Reservations == "" {
		return nil
	}
	if r.keeper, err = openKeeper(s.config.Reservations); err != nil {
		return err
	}
	first := r.keeper.snapshot.Load()
	r.obeyed.Store(first)
	r.acknowledged = first.Number
	return nil
}

// leaveReservations closes the keeper of a server that closes. While the disks' queue is open, its disks may still
// write: the server then keeps its place, and acknowledges only what forbids nothing that a disk has.
func (s *Server) leaveReservations(open error, limit time.Duration) error {
	k := s.reserving.keeper
	switch {
	case k == nil:
		return nil
	case open != nil:
		_, err := s.tendReservations()
		return err
	}
	return k.closeWithin(limit)
}

// reservationsOf returns the present state of a namespace; nil: it has none.
func (s *Server) reservationsOf(nqn string, id uint32) *fabrics.Reservations {
	if s.reserving.keeper == nil {
		return nil
	}
	return s.reserving.obeyed.Load().of(place{nqn, id})
}

// tendReservations applies changes, acknowledges them, and answers the commands that made them.
func (s *Server) tendReservations() (n int, err error) {
	r := &s.reserving
	if r.keeper == nil {
		return 0, nil
	}
	if r.keeper.pending(r.obeyed.Load().Number) {
		s.obey(r.keeper.snapshot.Load())
		n++
	}
	if now := r.obeyed.Load().Number; r.fenced == 0 && r.acknowledged != now {
		r.acknowledged = now
		r.keeper.acknowledge(r.acknowledged)
	}
	if c := r.change; c != nil && c.done.Load() {
		o := &s.operations[r.changing]
		r.change = nil
		n++
		if c.state != nil {
			b := s.region.Bytes(o.buffers[1].frame)
			clear(b)
			c.state.Report(b)
		}
		s.answer(o, c.status)
	}
	for r.change == nil && len(r.waiting) > 0 {
		s.beginChange()
	}
	return n, r.keeper.err()
}

// obey makes the server use a record. Hosts get the notices of the changes since the last one.
func (s *Server) obey(next *record) {
	before := s.reserving.obeyed.Load().Number
	for _, d := range s.disks { // also those whose namespace was removed, and which still have commands
		d.Reservations = next.of(d.place)
	}
	for i := range s.operations {
		o := &s.operations[i]
		if o.state != opIdle && o.state != opAnswered && !o.fenced && o.disk != nil && o.disk.Reservations.Conflicts(o.session.who, o.command.Opcode) {
			o.fenced = true
			s.reserving.fenced++
		}
	}
	s.reserving.obeyed.Store(next) // statistics show a reservation only when it is in force
	for _, t := range next.Notices {
		if t.Number > before {
			s.notify(&t)
		}
	}
}

// notify passes a notice to the controllers of its host.
func (s *Server) notify(t *told) {
	for _, h := range s.hosts {
		if h.Host.Host == t.Notice.Host && h.Subsystem.NQN == t.Place.Subsystem {
			h.Notify(t.Place.Namespace, t.Notice.Kind)
			s.tell(h)
		}
	}
}

// unfence records that a fenced operation has ended at the disk, or never began there.
func (s *Server) unfence(o *operation) {
	if o.fenced {
		o.fenced = false
		s.reserving.fenced--
	}
}

// reserve begins a command that changes reservations, once its data is there, or a report, once it has a buffer.
func (s *Server) reserve(o *operation) {
	o.state = opReserving
	s.reserving.waiting = append(s.reserving.waiting, o.number)
}

// beginChange passes the next command to the keeper.
func (s *Server) beginChange() {
	r := &s.reserving
	o := &s.operations[r.waiting[0]]
	r.waiting = r.waiting[:copy(r.waiting, r.waiting[1:])]
	if o.session.state != sessionOpen || o.session.host == nil {
		s.answer(o, fabrics.AbortedByRequest)
		return
	}
	command, status := fabrics.ReservationCommand{Opcode: o.command.Opcode}, fabrics.Success
	if command.Opcode != fabrics.OpReservationReport {
		command, status = fabrics.ReservationOf(&o.command, s.region.Bytes(o.buffers[0].frame))
	}
	if status != fabrics.Success {
		s.answer(o, status)
		return
	}
	r.change = &change{place: o.disk.place, host: o.session.who, command: command}
	r.changing = o.number
	r.keeper.requests <- r.change // there is room, because there is one change at a time
}

// reservation begins a command of reservations.
func (s *Server) reservation(o *operation) {
	c := &o.command
	if o.disk.Reservations == nil {
		s.answer(o, fabrics.InvalidOpcode|fabrics.DoNotRetry)
		return
	}
	if c.Opcode != fabrics.OpReservationReport {
		s.rdmaRead(o, fabrics.ReservationData(c.Opcode))
		return
	}
	n, status := fabrics.ReportLength(c)
	switch {
	case status != fabrics.Success:
		s.answer(o, status)
	case n != uint64(c.Data.Length) || n > s.pools[large].size:
		s.answer(o, fabrics.InvalidSGLLength|fabrics.DoNotRetry)
	case c.Data.Place != fabrics.InHost:
		s.answer(o, fabrics.InvalidSGLType|fabrics.DoNotRetry)
	default:
		s.need(o, 0, uint32(n))
	}
}
