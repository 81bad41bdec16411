package roce

import (
	"fmt"

	"github.com/unifiedd/unifiedd/umem"
)

// framePool holds the empty frames of the device that are not in the kernel's rings.
type framePool struct {
	empty   []umem.Frame // for receiving
	headers []umem.Frame // for headers of sent packets: kept apart, so that ACKs can be sent when all else is lent
	// all is the number of frames for receiving, wherever they are; want is how many there should be.
	all, want int
}

// take takes n frames from the region.
func (m *datapath) take(n int) ([]umem.Frame, error) {
	frames := make([]umem.Frame, n)
	if got := m.hands.Take(frames); got < n {
		m.hands.Give(frames[:got])
		return nil, fmt.Errorf("the region has %d free frames of the %d that are needed: make it larger, or lower Receive, Send or Loans", got, n)
	}
	return frames, nil
}

// grow adds n frames for receiving, to make up for those that a program may hold on loan.
func (m *datapath) grow(n int) error {
	frames, err := m.take(n)
	if err != nil {
		return err
	}
	s := &m.pool
	s.all, s.want = s.all+n, s.want+n
	s.reserve()
	for _, f := range frames {
		m.putBack(f)
	}
	return nil
}

// shrink gives n frames back to the region. Frames on loan follow when the program returns them.
func (m *datapath) shrink(n int) {
	s := &m.pool
	s.want -= n
	for s.all > s.want && len(s.empty) > 0 {
		last := len(s.empty) - 1
		m.hands.Give(s.empty[last:])
		s.empty = s.empty[:last]
		s.all--
	}
}

// reserve grows the slice so that putBack never allocates.
func (s *framePool) reserve() {
	if cap(s.empty) < s.all {
		s.empty = append(make([]umem.Frame, 0, s.all), s.empty...)
	}
}

// putBack returns an empty frame to the pool, or to the region if the pool has too many.
func (m *datapath) putBack(f umem.Frame) {
	f.Addr, f.Options = f.Addr&^(m.chunk-1), 0
	s := &m.pool
	if s.all > s.want {
		m.one[0] = f
		m.hands.Give(m.one[:])
		s.all--
		return
	}
	s.empty = append(s.empty, f)
}

// collect takes back frames whose loans have ended.
func (m *datapath) collect() {
	for {
		n := m.engine.Freed(m.freed[:])
		m.returned(m.freed[:n])
		if n < len(m.freed) {
			return
		}
	}
}

func (m *datapath) returned(frames []umem.Frame) {
	if len(frames) == 0 {
		return
	}
	m.lent.PassTo(m.hands, frames)
	for i := range frames {
		m.putBack(frames[i])
	}
	for _, q := range m.queues {
		m.supply(q)
		m.kick(q.port)
	}
}
