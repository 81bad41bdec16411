package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/docs/examples/trading/ouch"
	"github.com/unifiedd/unifiedd/docs/examples/trading/soupbin"
)

// plainSession is a connection with orders that repeat the tick. The exchange says nothing on it.
type plainSession struct {
	stream stream
	packet []byte
	said   [64]byte
}

func (s *plainSession) order(t *tick) []byte {
	t.put(s.packet, isOrder)
	return s.packet
}

func (s *plainSession) receive() error {
	n, err := s.stream.receive(s.said[:])
	if err == nil && n > 0 {
		err = fmt.Errorf("the exchange says %q, and orders are plain", s.said[:n])
	}
	return err
}

func (s *plainSession) idle(time.Time) []byte { return nil }
func (s *plainSession) replies() uint64       { return 0 }

// ouchSession is a connection with OUCH in SoupBinTCP.
type ouchSession struct {
	stream    stream
	packet    []byte // the order
	heartbeat []byte
	ready     bool
	ended     bool
	accepted  uint64
	buffer    [2 * soupbin.MaxPacket]byte
	have      int
	last      time.Time // when a heartbeat was sent
}

func newOuchSession(s stream) *ouchSession {
	return &ouchSession{stream: s, packet: enter(), heartbeat: soupbin.Append(nil, soupbin.ClientHeartbeat), last: time.Now()}
}

// login returns what the trader says at first.
func (s *ouchSession) login() ([]byte, error) {
	l := soupbin.Login{User: "trader", Password: "orders", Sequence: 1}
	return l.Append(nil)
}

func (s *ouchSession) order(t *tick) []byte {
	t.fillEnter(s.packet)
	return s.packet
}

func (s *ouchSession) receive() error {
	n, err := s.stream.receive(s.buffer[s.have:])
	switch {
	case errors.Is(err, errClosed) && !s.ended:
		return errors.New("the exchange has closed the connection without an end of the session")
	case err != nil || n == 0:
		return err
	}
	s.have += n
	for {
		p, n, err := soupbin.Next(s.buffer[:s.have])
		if err == nil && n > 0 {
			err = s.read(p)
		}
		if err != nil {
			return fmt.Errorf("receive from the exchange: %w", err)
		}
		if n == 0 {
			return nil
		}
		s.have = copy(s.buffer[:], s.buffer[n:s.have])
	}
}

// read takes a packet of the exchange.
func (s *ouchSession) read(p soupbin.Packet) error {
	switch p.Type {
	case soupbin.LoginAccepted:
		var a soupbin.Accepted
		s.ready = true
		return a.Parse(p.Payload)
	case soupbin.LoginRejected:
		var r soupbin.Rejection
		if err := r.Parse(p.Payload); err != nil {
			return err
		}
		return r
	case soupbin.ServerHeartbeat, soupbin.Debug:
		return nil
	case soupbin.EndOfSession:
		s.ended = true
		return nil
	case soupbin.SequencedData:
		var m ouch.Accepted
		if err := m.Parse(p.Payload); err != nil {
			return err
		}
		s.accepted++
		return nil
	}
	return fmt.Errorf("a packet of type %q does not belong here", byte(p.Type))
}

// idle returns a heartbeat each second, also between orders.
func (s *ouchSession) idle(now time.Time) []byte {
	if now.Sub(s.last) < soupbin.HeartbeatInterval {
		return nil
	}
	s.last = now
	return s.heartbeat
}

func (s *ouchSession) replies() uint64 { return s.accepted }
