package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// serve serves the jobs of clients.
func serve(ctx context.Context, o options, out io.Writer) error {
	config, err := o.connection()
	if err != nil {
		return err
	}
	if err := o.tryOpen(o.usual()); err != nil {
		return err
	}
	l, err := connect.Listen(ctx, ":"+strconv.Itoa(o.port), config)
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Fprintf(out, "waiting for a client on TCP port %d\n", o.port)
	for served, failed := 0, 0; ; {
		request, err := l.Accept(ctx)
		if ctx.Err() != nil {
			fmt.Fprintf(out, "ended: %d clients were served, %d failed%s\n", served, failed, handshakes(l.Failures()))
			return nil
		}
		if err == nil {
			err = serveOne(ctx, o, out, request)
		}
		if !o.keep {
			return err
		}
		if err == nil {
			served++
			continue
		}
		failed++
		fmt.Fprintln(out, "error:", err)
	}
}

// tryOpen reports what cannot work, before the first client connects. That includes missing huge pages.
func (o *options) tryOpen(m room) error {
	s, err := open(*o, netip.Addr{}, m)
	if err != nil {
		return err
	}
	return s.cleanup.Close()
}

// usual returns the memory that a client without options needs. The server can then report missing
// huge pages before the first client.
func (o *options) usual() room {
	usual := options{job: job{Test: bandwidthTest, Transport: rdma.RC, Op: "send", Inline: -1}}
	if o.disk != noDisk {
		usual.Test = storageTest
	}
	usual.fill(false)
	m := usual.room()
	if o.disk != noDisk {
		m.control = control
	}
	return m
}

// handshakes lists the failed handshakes by reason. Most come from programs that are not clients.
func handshakes(failures map[connect.Reason]uint64) (text string) {
	for _, r := range connect.Reasons {
		if n := failures[r]; n > 0 {
			text += fmt.Sprintf(", %s %d", r, n)
		}
	}
	if text == "" {
		return ""
	}
	return "; handshakes that failed: " + text[2:]
}

// connection returns how both sides connect.
func (o *options) connection() (c connect.Config, err error) {
	c.Timeout = o.replyTimeout
	if o.cert != "" {
		c.Credentials, err = connect.LoadCredentials(o.cert, o.key, o.authority)
	}
	return c, err
}

// serveOne serves or refuses one client.
func serveOne(ctx context.Context, o options, out io.Writer, r *connect.Request) error {
	j, err := decode(r.Remote().Hello)
	if err == nil {
		err = o.takes(&j)
	}
	if err != nil {
		return errors.Join(err, r.Refuse(err.Error()))
	}
	fmt.Fprintf(out, "client %v: %v\n", r.Peer(), &j)
	m := j.room()
	if j.Test == storageTest {
		m.control = control
	}
	s, err := open(o, netip.AddrFrom16(r.Remote().Parameters.GID).Unmap(), m)
	if err != nil {
		return errors.Join(err, r.Refuse(err.Error()))
	}
	if j.Test == storageTest {
		err = s.store(ctx, j, r, out)
	} else {
		err = s.follow(ctx, j, r, out)
	}
	c, e := s.counted()
	c.print(out)
	return errors.Join(err, e, s.cleanup.Close())
}

// follow is the server's side of all tests except storage.
func (s *session) follow(ctx context.Context, j job, r *connect.Request, out io.Writer) error {
	l, local, err := newLink(ctx, s, j)
	if err != nil {
		return errors.Join(err, r.Refuse(err.Error()))
	}
	if err := l.ready(); err != nil {
		return errors.Join(err, r.Refuse(err.Error()))
	}
	w, err := s.waiting(j)
	if err != nil {
		return errors.Join(err, r.Refuse(err.Error()))
	}
	conn, err := r.Accept(l.end(local, w.hello()))
	if err != nil {
		return err
	}
	if err := l.connected(conn); err != nil {
		return err
	}
	if err := w.meet(ctx, l.qp, local); err != nil {
		return err
	}
	err = l.answer()
	if err == nil {
		err = l.awaitEnd()
	}
	if err == nil && j.Manager {
		err = l.tell("end") // if the client left now, it would flush what is not acknowledged
	}
	if err == nil && j.Test == verifyTest && isAtomic(l.op) {
		err = l.checkWord()
	}
	if err != nil {
		return fmt.Errorf("%v: %w", &j, err)
	}
	fmt.Fprintln(out, "done")
	return nil
}

// ready posts the receives that the peer needs first.
func (l *link) ready() error {
	if twoSided(l.op) {
		return l.post(0, l.receives())
	}
	return nil
}

// answer is the server's side while the client works.
func (l *link) answer() error {
	switch {
	case l.Test == verifyTest:
		return l.answerVerify()
	case l.Test == latencyTest:
		return l.answerLatency()
	}
	return l.answerBandwidth()
}
