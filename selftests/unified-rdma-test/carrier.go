package main

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/umem"
)

// carrier is a queue pair that replaces a TCP connection for the conversation with a program of perftest.
// Each Write is a SEND. Each Read returns bytes of a received message. The session closes it.
type carrier struct {
	link
	conn     cm.Conn
	frame    umem.Frame
	deadline atomic.Int64 // in nanoseconds since 1970; 0: none
	left     []byte       // unread bytes of the current message
}

var _ net.Conn = (*carrier)(nil)

// The size of a carrier's messages, and how many may arrive before one is read.
const (
	carried     = 64 // bytes
	carriedMany = 8
)

// newCarrier makes the queue pair in one frame of a link's region. It is in INIT with receives posted.
func newCarrier(l *link) (*carrier, error) {
	c := &carrier{}
	c.session, c.ctx = l.session, l.ctx
	frames := make([]umem.Frame, 1)
	if c.worker.Take(frames) < 1 || c.region.FrameSize() < carried*(carriedMany+1) {
		return nil, fmt.Errorf("the region has no room for the conversation")
	}
	c.frame = frames[0]
	if err := c.few(carriedMany); err != nil {
		return nil, err
	}
	a := rdma.Attributes{State: rdma.Init, Port: c.settings.Port}
	if err := c.qp.Modify(a, rdma.MaskState|rdma.MaskPKeyIndex|rdma.MaskPort|rdma.MaskAccess); err != nil {
		return nil, err
	}
	for place := range uint64(carriedMany) {
		if err := c.expect(place); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// at returns the address of a message slot: received messages from 0 on, then the one to send.
func (c *carrier) at(place uint64) uint64 { return c.frame.Addr + carried*place }

func (c *carrier) element(place uint64, n int) rdma.SGE {
	return rdma.SGE{Addr: c.memory.Addr() + c.at(place), Length: uint32(n), LKey: c.memory.LKey()}
}

func (c *carrier) expect(place uint64) error {
	c.recvs[0], c.sges[0] = rdma.ReceiveRequest{ID: place, SGEs: 1}, c.element(place, carried)
	if n, err := c.qp.PostReceive(c.recvs, c.sges); n < 1 {
		return fmt.Errorf("post a receive: %w", err)
	}
	return nil
}

// Write sends one message.
func (c *carrier) Write(b []byte) (int, error) {
	if len(b) > carried {
		return 0, fmt.Errorf("a message of %d bytes: at most %d", len(b), carried)
	}
	copy(c.region.At(c.at(carriedMany), carried), b)
	if err := c.send(rdma.SendRequest{Op: rdma.Send, Flags: rdma.Signaled, SGEs: 1}, c.element(carriedMany, len(b))); err != nil {
		return 0, err
	}
	if _, err := c.take(c.sent); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Read returns bytes of the oldest received message.
func (c *carrier) Read(b []byte) (int, error) {
	if len(c.left) == 0 {
		got, err := c.take(c.came)
		if err != nil {
			return 0, err
		}
		c.left = append([]byte(nil), c.region.At(c.at(got.ID), uint64(min(got.Length, carried)))...)
		if err := c.expect(got.ID); err != nil {
			return 0, err
		}
	}
	n := copy(b, c.left)
	c.left = c.left[n:]
	return n, nil
}

// take waits for a completion until the deadline.
func (c *carrier) take(q rdma.CompletionQueue) (rdma.WorkCompletion, error) {
	for {
		n, err := q.Spin(c.polled[:1], spin)
		switch at := c.deadline.Load(); {
		case err != nil:
			return c.polled[0], err
		case n > 0:
			return c.polled[0], c.good(c.polled[:1])
		case at != 0 && time.Now().UnixNano() > at:
			return c.polled[0], os.ErrDeadlineExceeded
		case c.conn.Err() != nil:
			return c.polled[0], c.conn.Err()
		}
		time.Sleep(spin)
	}
}

// SetDeadline sets a deadline for Read and Write, including calls that already wait.
func (c *carrier) SetDeadline(t time.Time) error {
	if t.IsZero() {
		c.deadline.Store(0)
	} else {
		c.deadline.Store(t.UnixNano())
	}
	return nil
}

func (c *carrier) SetReadDeadline(t time.Time) error  { return c.SetDeadline(t) }
func (c *carrier) SetWriteDeadline(t time.Time) error { return c.SetDeadline(t) }

// Close does nothing. The session closes the queue pair.
func (c *carrier) Close() error { return nil }

func (c *carrier) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(c.conn.Address().Local) }
func (c *carrier) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.conn.Address().Remote) }
