package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/connect/pingpong"
)

// fillPingpong sets the defaults of the pingpong programs.
func (o *options) fillPingpong(given map[string]bool) error {
	if o.Manager {
		return fmt.Errorf("-R and -peer %s do not go together", o.peer)
	}
	o.Test, o.Op, o.Depth, o.Inline = latencyTest, "send", 1, 0
	if !given["size"] {
		o.Size = pingpong.Size
	}
	if !given["n"] {
		o.Count = pingpong.Iterations
	}
	return o.job.check()
}

// pingpong is either side of ibv_rc_pingpong, ibv_uc_pingpong or ibv_ud_pingpong.
func (o *options) pingpong(ctx context.Context, out io.Writer) error {
	return o.withPeer(ctx, out, pingpong.Settings(), func(l *link, local connect.Parameters, conn net.Conn) error {
		if err := l.ready(); err != nil {
			return err
		}
		exchange := pingpong.Client
		if o.server() {
			exchange = pingpong.Server
		}
		lead := func(remote connect.Parameters) error { return connect.Lead(l.qp, l.settings, local, remote) }
		remote, err := exchange(ctx, conn, local, lead)
		if err != nil {
			return err
		}
		if err := l.reach(remote); err != nil {
			return err
		}
		begin := time.Now()
		if err := l.bounce(!o.server()); err != nil {
			return err
		}
		o.printPingpong(out, time.Since(begin))
		return nil
	})
}

// bounce sends a message each time one arrives. The client sends first.
func (l *link) bounce(first bool) error {
	if first {
		return l.pingMessages(nil)
	}
	return l.pongMessages()
}

// printPingpong prints the two lines that those programs end with.
func (o *options) printPingpong(out io.Writer, d time.Duration) {
	bytes, s := float64(o.Size)*float64(o.Count)*2, d.Seconds()
	fmt.Fprintf(out, "%.0f bytes in %.2f seconds = %.2f Mbit/sec\n", bytes, s, bytes*8/1e6/s)
	fmt.Fprintf(out, "%d iters in %.2f seconds = %.2f usec/iter\n", o.Count, s, 1e6*s/float64(o.Count))
}
