package attach

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
)

// TakerConfig is a flow that takes connections which a program gives it.
type TakerConfig struct {
	Flow    string
	Program string // name of the program that may give connections
	// Take takes a connection, or says why it does not fit; that it is busy with an error that wraps wire.Busy. The
	// descriptor belongs to the caller, and the flow makes a copy; user is whose the program is. It is called on a goroutine of the program's session,
	// and may take some seconds. ended is called once the flow does not use the connection any more, for whatever reason
	// but release. release is called once, when the program wants the connection back or has ended. It returns when the
	// flow does not use the connection any more.
	Take func(fd int, user uint32, ended func(why string)) (release func(), err error)
}

// Taker is where a flow takes connections of a program. Any goroutine may call its methods.
type Taker struct {
	config  TakerConfig
	program *Program
}

// gift is a connection that a program has given. It counts as a port.
type gift struct {
	number  uint32
	release func()
}

// NewTaker lets a program give connections to a flow. The caller closes the Taker.
func (h *Hub) NewTaker(c TakerConfig) (*Taker, error) {
	p := h.programs[c.Program]
	if p == nil {
		return nil, fmt.Errorf("there is no program %q in attach.programs", c.Program)
	}
	t := &Taker{config: c, program: p}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.takers[c.Flow] != nil {
		return nil, fmt.Errorf("flow %s takes connections of program %s already", c.Flow, c.Program)
	}
	p.takers[c.Flow] = t
	return t, nil
}

// Close ends taking. What was taken stays with the flow, which says itself when that ends.
func (t *Taker) Close() error {
	t.program.mu.Lock()
	defer t.program.mu.Unlock()
	if t.program.takers[t.config.Flow] == t {
		delete(t.program.takers, t.config.Flow)
	}
	return nil
}

// give answers a program that gives a connection. A refusal is no error. The caller closes the rest of the descriptors.
func (s *session) give(m *wire.Open, fds []int) (rest []int, err error) {
	g, why := s.take(m, fds)
	if why != nil {
		s.program.ended(why.Reason)
		s.log.Warn("a program's connection was refused", "program", s.program.name, "flow", m.Flow, "reason", why.Reason.String(), "err", why.Text)
		return fds, s.write(why, false)
	}
	_ = unix.Close(fds[0]) // the flow has a copy, and the socket's settings stay
	s.log.Info("a program has given a connection", "program", s.program.name, "flow", m.Flow, "port", g.number)
	return nil, s.write(&wire.Opened{Port: g.number}, false)
}

// take passes a connection to the flow. The flow may say that it has ended before take returns.
func (s *session) take(m *wire.Open, fds []int) (*gift, *wire.Refusal) {
	refuse := func(why wire.Reason, format string, args ...any) (*gift, *wire.Refusal) {
		return nil, &wire.Refusal{Reason: why, Text: fmt.Sprintf(format, args...)}
	}
	s.program.mu.Lock()
	t := s.program.takers[m.Flow]
	number, full := s.number()
	s.program.mu.Unlock()
	switch {
	case t == nil:
		return refuse(wire.NoSuchFlow, "no running flow %q takes connections of program %q (to.order.given)", m.Flow, s.program.name)
	case full:
		return refuse(wire.OverQuota, "a program has at most %d ports", maxPorts)
	case len(fds) != 1:
		return refuse(wire.BadDescriptor, "the descriptor of one connection must come with the message, and not %d", len(fds))
	}
	g := &gift{number: number}
	s.program.mu.Lock()
	s.gifts[number] = g
	s.program.mu.Unlock()
	release, err := t.config.Take(fds[0], s.uid, func(why string) { s.giftEnded(g, why) })
	if err != nil {
		s.dropGift(g)
		if errors.Is(err, wire.Busy) {
			return refuse(wire.Busy, "flow %q: %v", m.Flow, err)
		}
		return refuse(wire.BadDescriptor, "flow %q: %v", m.Flow, err)
	}
	s.program.mu.Lock()
	g.release = release
	s.program.mu.Unlock()
	return g, nil
}

// dropGift reports whether a gift was known.
func (s *session) dropGift(g *gift) bool {
	s.program.mu.Lock()
	defer s.program.mu.Unlock()
	if s.gifts[g.number] != g {
		return false
	}
	delete(s.gifts, g.number)
	return true
}

// giftEnded tells the program that the flow does not use its connection any more.
func (s *session) giftEnded(g *gift, why string) {
	if !s.dropGift(g) {
		return // the program knows
	}
	s.program.ended(wire.Closing)
	_ = s.write(&wire.Closed{Port: g.number, Refusal: wire.Refusal{Reason: wire.Closing, Text: why}}, false) // if it is gone, the session ends
}

// takeBack gives a connection back to the program, and tells it.
func (s *session) takeBack(g *gift) {
	if !s.dropGift(g) {
		return
	}
	g.release()
	_ = s.write(&wire.Closed{Port: g.number, Refusal: wire.Refusal{Reason: wire.None, Text: "as asked for"}}, false) // if it is gone, the session ends
}

// rightsRoom is room for as many descriptors as a message can bring: SCM_MAX_FD of the kernel. The kernel closes those
// without room, and the thread that reads waits for that: see closeAll.
const rightsRoom = 16 + 4*254

// closeAll closes descriptors that came with a message. A program may send a socket whose close waits for its peer
// (SO_LINGER, socket(7)): nobody waits for it.
func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{}) // it may be no socket
		_ = unix.Close(fd)
	}
}
