package main

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/connect/perftest"
)

// fillPerftest sets the defaults of perftest's programs.
func (o *options) fillPerftest(given map[string]bool) error {
	test, err := perftest.ParseTest(o.peer)
	if err != nil {
		return err
	}
	d := test.Defaults()
	o.Test = bandwidthTest
	if test.Latency() {
		o.Test = latencyTest
	}
	switch test {
	case perftest.WriteLatency, perftest.WriteBandwidth:
		o.Op = "write"
	case perftest.ReadLatency, perftest.ReadBandwidth:
		o.Op = "read"
	case perftest.AtomicLatency, perftest.AtomicBandwidth:
		if !given["op"] {
			o.Op = "fetch-add"
		}
	}
	o.Depth = d.SendDepth
	if !given["size"] {
		o.Size = uint64(d.Size)
	}
	if !given["n"] {
		o.Count = d.Iterations
	}
	o.fill(true)
	return o.job.check()
}

// perftest is either side of a perftest program.
func (o *options) perftest(ctx context.Context, out io.Writer) error {
	test, err := perftest.ParseTest(o.peer)
	if err != nil {
		return err
	}
	if o.Manager {
		return o.perftestManaged(ctx, test, out)
	}
	return o.withPeer(ctx, out, test.Settings(), func(l *link, local connect.Parameters, conn net.Conn) error {
		return l.converse(ctx, conn, test, local, nil, out)
	})
}

// converse runs the conversation, and our side of the test in it. With -R meet connects the queue pair.
func (l *link) converse(ctx context.Context, conn net.Conn, test perftest.Test, local connect.Parameters, meet func() error, out io.Writer) error {
	c := perftest.Config{Test: test, MTU: local.MTU, Manager: meet != nil}
	if l.options.server() {
		c.Role = perftest.Server
	}
	s, err := perftest.Begin(ctx, conn, c)
	if err != nil {
		return err
	}
	local.MTU = s.Agreed().MTU
	if meet != nil {
		if err := s.Meet(ctx, meet); err != nil {
			return err
		}
	}
	if err := l.exchangeKeys(ctx, s, local); err != nil {
		return err
	}
	if err := s.Start(ctx); err != nil {
		return err
	}
	return l.besidePerftest(ctx, s, out)
}

// exchangeKeys brings the queue pair to RTS, unless rdma_cm has done so, and receives the location
// of the peer's memory.
func (l *link) exchangeKeys(ctx context.Context, s *perftest.Session, local connect.Parameters) error {
	if twoSided(l.op) {
		if err := l.post(0, l.receives()); err != nil {
			return err
		}
	}
	mine := perftest.KeyOf(local, l.granted.RKey(), l.granted.Addr())
	var remote connect.Parameters
	keys, err := s.Exchange(ctx, []perftest.Key{mine}, func(keys []perftest.Key) (err error) {
		if remote, err = keys[0].Parameters(l.Transport, local.MTU, mine); err != nil {
			return err
		}
		if l.Manager {
			return nil // rdma_cm has done so
		}
		return connect.Lead(l.qp, l.settings, local, remote)
	})
	if err != nil {
		return err
	}
	l.theirs = connect.Grant{RKey: keys[0].RKey, Addr: keys[0].Addr, Length: s.Reach(l.Size)}
	l.apart = 0 // the peer has memory for one message
	return l.reach(remote)
}

// besidePerftest runs our side and ends the conversation.
func (l *link) besidePerftest(ctx context.Context, s *perftest.Session, out io.Writer) error {
	if l.options.server() {
		if err := l.answer(); err != nil {
			return err
		}
		if _, err := s.Finish(ctx, perftest.Report{}); err != nil {
			return err
		}
		_, err := fmt.Fprintln(out, "done")
		return err
	}
	r, err := l.measure()
	if err != nil {
		return err
	}
	var mine perftest.Report
	if r.bandwidth != nil {
		mine = perftest.ReportOf(*r.bandwidth)
	}
	if _, err := s.Finish(ctx, mine); err != nil {
		return err
	}
	return r.print(out, l.options.json)
}
