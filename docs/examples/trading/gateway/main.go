// Command gateway takes orders of one trader, as an exchange does: messages of OUCH in SoupBinTCP. It accepts every
// order, and says when the order arrived. When the trader logs out it ends the session, and prints what it got.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/unifiedd/unifiedd/docs/examples/trading/market"
	"github.com/unifiedd/unifiedd/docs/examples/trading/ouch"
	"github.com/unifiedd/unifiedd/docs/examples/trading/soupbin"
)

func main() {
	listen := flag.String("listen", ":7000", "`address:port` where the trader connects to")
	stream := flag.String("stream", "", "`file` for all bytes that the trader sends")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *stream); err != nil {
		log.Fatal("gateway: ", err)
	}
}

func run(ctx context.Context, listen, stream string) (err error) {
	s := &session{}
	if stream != "" {
		if s.file, err = os.Create(stream); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.file.Close()) }()
	}
	conn, err := accept(ctx, listen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.close()) }()
	defer context.AfterFunc(ctx, func() { conn.tcp.Close() })()
	s.conn = conn
	if err := s.run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	r := market.Report{Program: "gateway", Counts: map[string]uint64{"orders": s.orders, "bytes": s.bytes, "unstamped": conn.unstamped}}
	return r.Print(os.Stdout)
}

// accept waits for the trader.
func accept(ctx context.Context, address string) (*connection, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	c, err := l.Accept()
	if err != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	return newConnection(c.(*net.TCPConn))
}

// session is a session of the trader.
type session struct {
	conn   *connection
	file   *os.File // nil: nobody wants the bytes
	ready  bool     // the trader has logged in
	orders uint64
	bytes  uint64
	said   time.Time // when the gateway has sent something
	heard  time.Time
	answer []byte
}

// run serves the trader until it logs out.
func (s *session) run() error {
	s.said, s.heard = time.Now(), time.Now()
	var buffer [soupbin.MaxPacket]byte
	for have := 0; ; {
		// No more is read than one packet has, so that each order has the time of its own arrival.
		n, at, err := s.conn.read(buffer[have:have+missing(buffer[:have])], s.said.Add(soupbin.HeartbeatInterval))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if time.Since(s.heard) > soupbin.Timeout {
				return fmt.Errorf("the trader says nothing for %v", soupbin.Timeout)
			}
			err = s.say(soupbin.Append(s.answer[:0], soupbin.ServerHeartbeat))
		}
		if err != nil {
			return err
		}
		if n == 0 {
			continue
		}
		s.heard = time.Now()
		have += n
		p, length, err := soupbin.Next(buffer[:have])
		if err != nil {
			return fmt.Errorf("byte %d: %w", s.bytes, err)
		}
		if length == 0 {
			continue
		}
		if s.file != nil {
			if _, err := s.file.Write(buffer[:length]); err != nil {
				return err
			}
		}
		s.bytes += uint64(length)
		have = 0
		ended, err := s.take(p, at)
		if ended || err != nil {
			return err
		}
	}
}

// missing returns how many bytes of a packet, at least, are still to come.
func missing(b []byte) int {
	if len(b) < 2 {
		return soupbin.HeaderLen - len(b)
	}
	return 2 + int(b[0])<<8 + int(b[1]) - len(b) // Next has checked it
}

// take takes a packet that arrived at a time.
func (s *session) take(p soupbin.Packet, at time.Time) (ended bool, err error) {
	switch {
	case p.Type == soupbin.LoginRequest && !s.ready:
		var l soupbin.Login
		if err := l.Parse(p.Payload); err != nil {
			return false, err
		}
		s.ready = true
		a := soupbin.Accepted{Session: "TODAY", Sequence: 1}
		return false, s.say(a.Append(s.answer[:0]))
	case !s.ready:
		return false, fmt.Errorf("a packet of type %q before the login", byte(p.Type))
	case p.Type == soupbin.ClientHeartbeat || p.Type == soupbin.Debug:
		return false, nil
	case p.Type == soupbin.LogoutRequest:
		return true, s.say(soupbin.Append(s.answer[:0], soupbin.EndOfSession))
	case p.Type != soupbin.UnsequencedData:
		return false, fmt.Errorf("a packet of type %q does not belong here", byte(p.Type))
	}
	var m ouch.Enter
	if err := m.Parse(p.Payload); err != nil {
		return false, err
	}
	s.orders++
	var message [ouch.AcceptedLen]byte
	a := ouch.Accepted{Time: market.SinceMidnight(at), Order: m, Reference: s.orders, State: 'L', Weight: ' '}
	return false, s.say(soupbin.Append(s.answer[:0], soupbin.SequencedData, a.Append(message[:0])...))
}

// say sends a packet.
func (s *session) say(b []byte) error {
	s.answer, s.said = b[:0], time.Now()
	return s.conn.write(b)
}
