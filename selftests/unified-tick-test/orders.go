package main

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/docs/examples/trading/ouch"
	"github.com/unifiedd/unifiedd/docs/examples/trading/soupbin"
)

// errClosed is what a stream says at its end.
var errClosed = errors.New("the trader has closed the connection")

// orders is the exchange's end of the connection for orders.
type orders struct {
	fd      int
	ouch    bool
	seed    uint64
	session string

	ready   bool   // the trader has logged in, if it must
	bytes   uint64 // of whole messages, so far
	buffer  [soupbin.MaxPacket]byte
	have    int // bytes of a message that is not complete
	ended   bool
	want    []byte // the order that must come
	replies []byte // that the kernel has not taken yet
	shut    bool   // nothing more is sent
	replied uint64
	last    time.Time // when something was sent
}

// mostReplies is how many bytes of replies may wait for a trader that does not read them.
const mostReplies = 1 << 20

func newOrders(fd int, o *options) *orders {
	s := &orders{fd: fd, ouch: o.protocol == ouchProtocol, seed: o.seed, session: "TODAY", want: make([]byte, tickLen), last: time.Now()}
	s.ready = !s.ouch
	if s.ouch {
		s.want = enter()
	}
	return s
}

// order is an order that has come.
type order struct {
	sequence    uint64 // of its tick; 0: no order has come
	own, kernel int64  // when: by the program's clock, and by the kernel's stamp, or 0
}

// receive reads once, and returns the order that is complete with it, if one is. It reads no more than one order, so
// that each has its stamp. Whether the order has its tick's bytes is checked.
func (s *orders) receive() (o order, err error) {
	var beside [besideLen]byte
	n, besides, errno := receive(s.fd, s.buffer[s.have:s.have+s.missing()], beside[:], 0)
	now := time.Now().UnixNano()
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return o, nil
	case errno != 0:
		return o, fmt.Errorf("receive orders: %w", errno)
	case n == 0 && s.have > 0:
		return o, fmt.Errorf("the stream of orders ends within one, at byte %d", s.bytes+uint64(s.have))
	case n == 0:
		return o, errClosed
	}
	s.have += n
	at, _, _ := stamps(beside[:besides])
	for {
		sequence, length, err := s.next(s.buffer[:s.have])
		if err != nil {
			return o, fmt.Errorf("byte %d of the stream of orders: %w", s.bytes, err)
		}
		if length == 0 {
			return o, nil
		}
		s.have = copy(s.buffer[:], s.buffer[length:s.have])
		s.bytes += uint64(length)
		if sequence > 0 {
			o = order{sequence, now, at}
		}
	}
}

// missing returns how many bytes to read next.
func (s *orders) missing() int {
	whole := len(s.want)
	if s.ouch && s.have >= 2 {
		whole = 2 + int(s.buffer[0])<<8 + int(s.buffer[1]) // Next has checked it
	}
	return whole - s.have
}

// next returns the first message of b: which tick it answers, or 0, and its length, or 0 if it is not complete.
func (s *orders) next(b []byte) (sequence uint64, length int, err error) {
	if s.ouch {
		return s.packet(b)
	}
	if len(b) < tickLen {
		return 0, 0, nil
	}
	var t tick
	if err := t.read(b, isOrder); err != nil {
		return 0, 0, err
	}
	want := tickOf(s.seed, t.sequence)
	want.put(s.want, isOrder)
	return t.sequence, tickLen, s.compare(b[:tickLen], t.sequence)
}

// compare compares an order with the one that must come.
func (s *orders) compare(got []byte, sequence uint64) error {
	if sequence > 0 && bytes.Equal(got, s.want) {
		return nil
	}
	return fmt.Errorf("the order for tick %d is %q, and not %q", sequence, got, s.want)
}

// packet reads a packet of SoupBinTCP.
func (s *orders) packet(b []byte) (sequence uint64, length int, err error) {
	p, length, err := soupbin.Next(b)
	if err != nil || length == 0 {
		return 0, 0, err
	}
	switch {
	case p.Type == soupbin.LoginRequest && !s.ready:
		return 0, length, s.login(p.Payload)
	case !s.ready:
		err = fmt.Errorf("a packet of type %q before the login", byte(p.Type))
	case p.Type == soupbin.ClientHeartbeat || p.Type == soupbin.Debug:
	case p.Type == soupbin.LogoutRequest:
		s.ended = true
	case p.Type != soupbin.UnsequencedData || s.ended:
		err = fmt.Errorf("a packet of type %q does not belong here", byte(p.Type))
	default:
		var m ouch.Enter
		if err = m.Parse(p.Payload); err != nil {
			break
		}
		sequence = tokenNumber(m.Token)
		want := tickOf(s.seed, sequence)
		want.fillEnter(s.want)
		if err = s.compare(b[:length], sequence); err == nil {
			err = s.accept(&m)
		}
	}
	return sequence, length, err
}

// login answers a login. The session begins with message 1.
func (s *orders) login(payload []byte) error {
	var l soupbin.Login
	if err := l.Parse(payload); err != nil {
		return err
	}
	s.ready = true
	a := soupbin.Accepted{Session: s.session, Sequence: 1}
	return s.reply(a.Append(nil))
}

// accept answers an order.
func (s *orders) accept(m *ouch.Enter) error {
	var message [ouch.AcceptedLen]byte
	s.replied++
	a := ouch.Accepted{Time: uint64(time.Now().UnixNano()) % uint64(24*time.Hour), Order: *m, Reference: s.replied, State: 'L', Weight: ' '}
	var packet [soupbin.HeaderLen + ouch.AcceptedLen]byte
	return s.reply(soupbin.Append(packet[:0], soupbin.SequencedData, a.Append(message[:0])...))
}

// reply sends bytes to the trader, now or when the kernel takes them. An order that comes behind the end of the session
// gets no answer.
func (s *orders) reply(b []byte) error {
	if s.shut {
		return nil
	}
	s.replies = append(s.replies, b...)
	if len(s.replies) > mostReplies {
		return errors.New("the trader does not read what the exchange answers")
	}
	return s.flush()
}

// flush sends replies that wait.
func (s *orders) flush() error {
	for len(s.replies) > 0 && !s.shut {
		n, errno := write(s.fd, s.replies)
		switch {
		case errno == unix.EAGAIN || errno == unix.EINTR:
			return nil
		case errno != 0:
			return fmt.Errorf("answer an order: %w", errno)
		}
		s.replies = s.replies[:copy(s.replies, s.replies[n:])]
		s.last = time.Now()
	}
	return nil
}

// idle sends what is due while nothing comes.
func (s *orders) idle(now time.Time) error {
	if s.ouch && s.ready && now.Sub(s.last) >= soupbin.HeartbeatInterval && len(s.replies) == 0 {
		return s.reply(soupbin.Append(nil, soupbin.ServerHeartbeat))
	}
	return s.flush()
}

// end ends the session: nothing more is sent.
func (s *orders) end() error {
	if s.ouch {
		if err := s.reply(soupbin.Append(nil, soupbin.EndOfSession)); err != nil {
			return err
		}
	}
	s.shut = true
	return unix.Shutdown(s.fd, unix.SHUT_WR)
}
