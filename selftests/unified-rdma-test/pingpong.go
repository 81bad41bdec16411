package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// Defaults that ibv_rc_pingpong, ibv_uc_pingpong and ibv_ud_pingpong assume (rdma-core, libibverbs/examples). They do
// not exchange the size and the number of messages.
const (
	pingpongPort  = 18515        // TCP
	pingpongSize  = 4096         // bytes of a message
	pingpongCount = 1000         // messages each way
	pingpongMTU   = rdma.MTU1024 // of RC and UC
	pingpongQKey  = 0x11111111   // of datagrams
)

// fillPingpong sets the defaults of the pingpong programs.
func (o *options) fillPingpong(given map[string]bool) error {
	if o.Manager {
		return fmt.Errorf("-R and -peer %s do not go together", o.peer)
	}
	o.Test, o.Op, o.Depth, o.Inline = latencyTest, "send", 1, 0
	if !given["port"] {
		o.port = pingpongPort
	}
	if !given["size"] {
		o.Size = pingpongSize
	}
	if !given["n"] {
		o.Count = pingpongCount
	}
	return o.job.check()
}

// pingpong is either side of the three programs. Each side sends again when a message has arrived. The client begins.
func (o *options) pingpong(ctx context.Context, out io.Writer) (err error) {
	conn, err := o.meet(ctx, out)
	if err != nil {
		return err
	}
	defer conn.Close()
	s, err := open(*o, conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(), o.job.room())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.cleanup.Close()) }()
	s.asPingpong()
	l, local, err := newLink(ctx, s, o.job)
	if err != nil {
		return err
	}
	if err := l.ready(); err != nil {
		return err
	}
	if err := l.swap(conn, local); err != nil {
		return err
	}
	begin := time.Now()
	if o.server() {
		err = l.pongMessages()
	} else {
		err = l.pingMessages(nil)
	}
	if err != nil {
		return err
	}
	bytes, d := float64(o.Size)*float64(o.Count)*2, time.Since(begin).Seconds() // the two lines that those programs end with
	fmt.Fprintf(out, "%.0f bytes in %.2f seconds = %.2f Mbit/sec\n", bytes, d, bytes*8/1e6/d)
	fmt.Fprintf(out, "%d iters in %.2f seconds = %.2f usec/iter\n", o.Count, d, 1e6*d/float64(o.Count))
	return nil
}

// meet connects to the other program over TCP, or accepts its connection.
func (o *options) meet(ctx context.Context, out io.Writer) (net.Conn, error) {
	if !o.server() {
		d := net.Dialer{Timeout: o.replyTimeout}
		return d.DialContext(ctx, "tcp", net.JoinHostPort(o.where, strconv.Itoa(o.port)))
	}
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", ":"+strconv.Itoa(o.port))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	fmt.Fprintf(out, "waiting for %s on TCP port %d\n", o.peer, o.port)
	conn, err := l.Accept()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return conn, err
}

// asPingpong uses the programs' settings of queue pairs: seven retries, no limit for receiver-not-ready, and one READ.
func (s *session) asPingpong() {
	c := &s.settings
	c.MTU, c.MaxReads, c.Retries, c.RNRRetries, c.HopLimit, c.QKey = max(pingpongMTU, c.MTU), 1, 7, 7, 1, pingpongQKey
}

// destination is what the programs say of their queue pair: LID, queue pair number, packet sequence number and GID.
func destination(p connect.Parameters) []byte {
	return fmt.Appendf(nil, "%04x:%06x:%06x:%x\x00", p.LID, p.QPN, p.PSN, p.GID[:])
}

// parseDestination reads exactly what destination makes. local has the values that both sides are started with.
func parseDestination(b []byte, local connect.Parameters) (connect.Parameters, error) {
	p := connect.Parameters{Transport: local.Transport, MTU: local.MTU, MaxReads: 1, MaxRemoteReads: 1}
	if p.Transport == rdma.UD {
		p.QKey = pingpongQKey
	}
	number := func(from, to int) uint32 {
		n, _ := strconv.ParseUint(string(b[from:to]), 16, 32)
		return uint32(n)
	}
	if len(b) == len(destination(p)) {
		p.LID, p.QPN, p.PSN = uint16(number(0, 4)), number(5, 11), number(12, 18)
		_, _ = hex.Decode(p.GID[:], b[19:51])
	}
	if !bytes.Equal(destination(p), b) {
		return p, fmt.Errorf("%q is not what a pingpong says of its queue pair", b)
	}
	return p, p.Check()
}

// swap tells the peer of our queue pair, hears of the peer's, and brings ours to RTS. The client speaks first. The
// server's queue pair is in RTS when it answers, so that the client can send at once.
func (l *link) swap(conn net.Conn, local connect.Parameters) error {
	if err := conn.SetDeadline(time.Now().Add(l.options.replyTimeout)); err != nil {
		return err
	}
	defer context.AfterFunc(l.ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	mine, done := destination(local), []byte("done\x00")
	say := func(b []byte) func() error { return func() error { _, err := conn.Write(b); return err } }
	hear := func() error {
		b := make([]byte, len(mine))
		if _, err := io.ReadFull(conn, b); err != nil {
			return err
		}
		remote, err := parseDestination(b, local)
		if err == nil {
			err = connect.Lead(l.qp, l.settings, local, remote)
		}
		if err == nil {
			err = l.reach(remote)
		}
		return err
	}
	end := func() error {
		b := make([]byte, len(done))
		if _, err := io.ReadFull(conn, b); err != nil || !bytes.Equal(b, done) {
			return fmt.Errorf("the client ends with %q and not %q: %w", b, done, err)
		}
		return nil
	}
	steps := []func() error{say(mine), hear, say(done)}
	if l.options.server() {
		steps = []func() error{hear, say(mine), end}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("exchange addresses with %s: %w", l.options.peer, err)
		}
	}
	return nil
}
