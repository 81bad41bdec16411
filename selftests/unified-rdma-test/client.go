package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"

	"github.com/unifiedd/unifiedd/rdma/connect"
)

// ask sends a job to a server and runs the client's side of it.
func ask(ctx context.Context, o options, out io.Writer) (err error) {
	config, err := o.connection()
	if err != nil {
		return err
	}
	peer, err := resolve(ctx, o.where)
	if err != nil {
		return err
	}
	m := o.job.room()
	if o.beyond {
		m.size++ // for the message that exceeds the limit
	}
	s, err := open(o, peer.WithZone(""), m)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.cleanup.Close()) }()
	address := net.JoinHostPort(peer.String(), strconv.Itoa(o.port))
	var r result
	if o.Test == storageTest {
		r, err = s.askStorage(ctx, address, config)
	} else {
		r, err = s.lead(ctx, address, config)
	}
	counted, e := s.counted()
	if err != nil {
		if !o.json {
			counted.print(out)
		}
		return errors.Join(fmt.Errorf("%v: %w", &o.job, err), e)
	}
	r.counted = counted
	return errors.Join(r.print(out, o.json), e)
}

// resolve returns the server's address. It determines our own. An address keeps its zone, which LookupNetIP drops.
func resolve(ctx context.Context, host string) (netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap(), nil
	}
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("ADDRESS %s: %w", host, err)
	}
	return all[0].Unmap(), nil
}

// lead is the client's side of all tests except storage.
func (s *session) lead(ctx context.Context, address string, config connect.Config) (result, error) {
	j := s.options.job
	l, local, err := newLink(ctx, s, j)
	if err != nil {
		return result{}, err
	}
	hello, err := j.encode()
	if err != nil {
		return result{}, err
	}
	if l.Test == latencyTest { // both sides post receives
		if err := l.ready(); err != nil {
			return result{}, err
		}
	}
	conn, err := connect.Dial(ctx, address, l.end(local, hello), config)
	if err != nil {
		return result{}, err
	}
	if err := l.connected(conn); err != nil {
		return result{}, err
	}
	if err := s.meet(ctx, address, conn, l.qp, local, l.Manager); err != nil {
		return result{}, err
	}
	still := l.stillWorking()
	r, err := l.measure()
	still()
	if err == nil && s.options.beyond {
		r.refused, err = l.beyond()
	}
	if err == nil {
		err = l.tell("end")
	}
	if err == nil && j.Manager {
		err = l.hear("end")
	}
	return r, err
}

// measure runs the client's part of a test.
func (l *link) measure() (result, error) {
	switch l.Test {
	case verifyTest:
		return l.verify()
	case latencyTest:
		return l.latency()
	}
	return l.bandwidth()
}
