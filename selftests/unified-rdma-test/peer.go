package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/unifiedd/unifiedd/rdma/connect"
)

// The other programs that may be on the other side.
const (
	pingpongPeer = "pingpong"
	rpingPeer    = "rping"
)

var peers = []string{pingpongPeer, rpingPeer, "ib_send_lat", "ib_send_bw", "ib_write_lat", "ib_write_bw", "ib_read_lat", "ib_read_bw",
	"ib_atomic_lat", "ib_atomic_bw"}

// peerPort is the TCP port of all of them except rping.
const peerPort = 18515

// checkPeer refuses options that the other program does not have.
func (o *options) checkPeer(given map[string]bool) error {
	if !slices.Contains(peers, o.peer) {
		return fmt.Errorf("-peer %s: it must be %s", o.peer, strings.Join(peers, ", "))
	}
	if given["op"] && !strings.Contains(o.peer, "atomic") {
		return fmt.Errorf("-op: -peer %s says what is done", o.peer)
	}
	for _, name := range []string{"test", "depth", "inline", "seed", "keep", "cert", "beyond"} {
		if given[name] {
			return fmt.Errorf("-%s and -peer do not go together", name)
		}
	}
	if o.disk != noDisk {
		return fmt.Errorf("BLOCK_DEV %s: -peer needs no disk; give - for it", o.disk)
	}
	if o.peer == rpingPeer {
		return o.fillRping(given)
	}
	if !given["port"] {
		o.port = peerPort
	}
	if !given["qp-timeout"] {
		o.qpTimeout = 0
	}
	if o.peer == pingpongPeer {
		return o.fillPingpong(given)
	}
	return o.fillPerftest(given)
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
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	defer l.Close()
	fmt.Fprintf(out, "waiting for %s on TCP port %d\n", o.peer, o.port)
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, err
		}
		if err = connect.AwaitByte(conn); err == nil { // all of them send first
			return conn, nil
		}
		fmt.Fprintln(out, "a connection that says nothing is closed:", err)
		_ = conn.Close()
	}
}

// withPeer runs f with the other program, over a prepared link and a connection beside it.
func (o *options) withPeer(ctx context.Context, out io.Writer, settings connect.Settings,
	f func(*link, connect.Parameters, net.Conn) error) (err error) {
	conn, err := o.meet(ctx, out)
	if err != nil {
		return err
	}
	defer conn.Close()
	peer, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return err
	}
	s, err := open(*o, peer.Addr().Unmap(), o.job.room())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.cleanup.Close()) }()
	s.settleAs(settings)
	l, local, err := newLink(ctx, s, o.job)
	if err != nil {
		return err
	}
	return f(l, local, conn)
}

// settleAs uses the other program's settings for queue pairs, except where the user gave others.
func (s *session) settleAs(other connect.Settings) {
	other.GID, other.MTU = s.settings.GID, max(other.MTU, s.settings.MTU)
	other.TrafficClass, other.SL = s.settings.TrafficClass, s.settings.SL
	if s.options.qpTimeout != 0 {
		other.Timeout = s.settings.Timeout
	}
	s.settings = other
}
