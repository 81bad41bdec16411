package blocks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// Poll posts what was submitted, and fills dst with answered requests, in whatever order. Once there are no more, the error says that the
// connection is lost.
func (c *Client) Poll(dst []Done) (int, error) {
	if c.cause == nil {
		c.round()
	}
	n := 0
	for ; n < len(dst) && c.head != c.tail; n++ {
		dst[n] = c.done[c.head%uint32(len(c.done))]
		c.head++
	}
	if n == 0 {
		return 0, c.cause
	}
	return n, nil
}

// round posts and polls once.
func (c *Client) round() {
	err := c.post()
	if err == nil {
		err = c.poll()
	}
	if gone := c.gone.Load(); gone != nil {
		c.fail(fmt.Errorf("block client %s: %w", c.config.Name, *gone))
	}
	if err != nil {
		c.fail(fmt.Errorf("block client %s: %w", c.config.Name, err))
	}
}

func (c *Client) post() error {
	if len(c.receives) > 0 {
		if _, err := c.qp.PostReceive(c.receives, c.room); err != nil {
			return fmt.Errorf("post receives: %w", err)
		}
		c.receives, c.room = c.receives[:0], c.room[:0]
	}
	if len(c.sends) > 0 {
		if _, err := c.qp.PostSend(c.sends, c.sges); err != nil {
			return fmt.Errorf("post requests: %w", err)
		}
		c.sends, c.sges = c.sends[:0], c.sges[:0]
	}
	return nil
}

func (c *Client) poll() error {
	n, err := c.came.queue.Poll(c.came.buf[:])
	if err == nil {
		err = c.take(n)
	}
	for more := true; more && err == nil; more = n == len(c.sent.buf) {
		if n, err = c.sent.queue.Poll(c.sent.buf[:]); err == nil {
			err = c.posted(n)
		}
	}
	return errors.Join(err, c.post())
}

// posted takes completions of requests, and of grants.
func (c *Client) posted(n int) error {
	for i := range c.sent.buf[:n] {
		w := &c.sent.buf[i]
		ours := !c.grants.Done(w)
		if err := w.Err(); err != nil {
			return fmt.Errorf("send a request: %w", err)
		}
		if slot := int32(w.ID >> 16); ours && slot >= 0 && int(slot) < len(c.slots) && c.slots[slot].sending {
			c.slots[slot].sending = false
			c.leave(slot)
		}
	}
	return nil
}

// take takes answers.
func (c *Client) take(n int) error {
	for i := range c.came.buf[:n] {
		w := &c.came.buf[i]
		if err := w.Err(); err != nil {
			return fmt.Errorf("receive an answer: %w", err)
		}
		if err := c.answer(w); err != nil {
			return err
		}
		c.receive(int(w.ID))
	}
	return nil
}

// errStray is an answer to nothing that was asked.
var errStray = errors.New("the server answered a request that was not made")

// answer takes one answer: bytes that were written, or a response.
func (c *Client) answer(w *rdma.WorkCompletion) error {
	if w.Kind == rdma.ReceivedWrite {
		b := w.Immediate()
		n, asked := c.slotOf(uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3]))
		if !asked || w.Length > c.slots[n].read.Frame.Len {
			return errStray
		}
		c.answered(n, nil)
		return nil
	}
	r, reason := protocol.ParseResponse(c.cells.bytes(int(w.ID))[:min(w.Length, protocol.HeaderLen)])
	if reason != protocol.None {
		return fmt.Errorf("a response of the server: %w", reason)
	}
	n, asked := c.slotOf(r.ID)
	if !asked {
		return errStray
	}
	c.answered(n, r.Status)
	return nil
}

// receive queues the receive of a cell.
func (c *Client) receive(cell int) {
	c.receives = append(c.receives, rdma.ReceiveRequest{ID: uint64(cell), SGEs: 1})
	c.room = append(c.room, c.cells.sge(cell))
}

const (
	waitSpin = 20 * time.Microsecond
	waitNap  = 20 * time.Microsecond
)

// Read reads as many bytes as the frame says from an offset of what is served, and waits until they are there. It is for those who have no other
// request under way.
func (c *Client) Read(ctx context.Context, offset uint64, f umem.Frame) error {
	if c.open > 0 || c.head != c.tail {
		return errors.New("other requests are under way: take their answers with Poll")
	}
	for {
		if did, err := c.Submit(Read{Offset: offset, Frame: f}); did || err != nil {
			if err != nil {
				return err
			}
			break
		}
		if err := c.wait(ctx); err != nil {
			return err
		}
	}
	var one [1]Done
	for {
		if n, err := c.Poll(one[:]); n > 0 || err != nil {
			return errors.Join(err, one[0].Err)
		}
		if err := c.wait(ctx); err != nil {
			return err
		}
	}
}

// wait is a moment in which something may come. When the context ends while a request is under way, so does the connection, which gives the frame back.
func (c *Client) wait(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		c.fail(fmt.Errorf("block client %s: %w", c.config.Name, err))
		c.head = c.tail
		return err
	}
	n, err := c.came.queue.Spin(c.came.buf[:1], waitSpin)
	if err == nil {
		err = c.take(n)
	}
	if err != nil {
		c.fail(fmt.Errorf("block client %s: %w", c.config.Name, err))
	}
	if n == 0 {
		t := unix.NsecToTimespec(waitNap.Nanoseconds()) // time.Sleep takes a millisecond where nothing else runs
		_ = unix.Nanosleep(&t, nil)                     // an interrupted nap is a shorter one
	}
	return nil
}
