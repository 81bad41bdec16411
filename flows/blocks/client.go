package blocks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/ep"
	"github.com/unifiedd/unifiedd/umem"
)

// Client asks a server for blocks. It belongs to one thread at a time.
//
// The server may write to a frame from Submit on. It keeps that right for some time after it has answered (ClientConfig.Grants), but a server
// of this package writes only once; whoever does not trust the server closes the client before he relies on the bytes, or copies them.
type Client struct {
	config  ClientConfig
	region  *umem.Region
	holder  *umem.Holder // cells
	granted *umem.Holder // frames that the server may write to
	sent    ep.Completions
	came    ep.Completions
	cells   *ep.ControlBuffers // those that answers land in, then those of the slots' requests
	qp      rdma.QueuePair
	grants  *rdma.Grants
	conn    *connect.Conn
	hello   protocol.Hello // the server's

	slots  []slot // places times as many as the window has
	free   []int32
	window int
	open   int // requests that were not answered
	done   []Done
	head   uint32 // of done, a ring
	tail   uint32
	list   ep.PostList

	gone    atomic.Pointer[error] // why the connection ended
	watcher sync.WaitGroup
	cause   error // the first that went wrong; nothing is asked any more
	closed  bool
}

// slot is the place of one request.
type slot struct {
	read       Read
	generation uint32
	asked      bool // it is not answered
	sending    bool // the request may be sent again
}

// Read is a request for as many bytes as the frame says.
type Read struct {
	Offset uint64     // on what is served; a multiple of Align, as is the frame's length
	Frame  umem.Frame // a frame or extent of the worker's that the bytes go to, as far as it says
	Token  uint64     // comes back with the answer
}

// Done is a request that was answered, and whose frame is the worker's again.
type Done struct {
	Read
	// Err is nil when the frame has the bytes; a protocol.Reason when the server refuses; anything else when the connection is lost.
	Err error
}

// errClosed is the cause of Close.
var errClosed = errors.New("the client is closed")

// Size is how many bytes are served.
func (c *Client) Size() uint64 { return c.hello.Size }

// Align is what offsets and lengths are multiples of.
func (c *Client) Align() uint32 { return c.hello.Align }

// Longest is the most bytes of one request.
func (c *Client) Longest() uint32 { return c.hello.Message }

// Window is how many requests there can be at once.
func (c *Client) Window() int { return c.window }

// Peer is the server, as the handshake knows it.
func (c *Client) Peer() connect.Peer { return c.conn.Peer() }

// Submit queues a request, which Poll posts, and says whether it could: not while as many are under way as can be, or grants are
// being made. The frame is the server's to write to from then on. An error is of a frame that cannot be, or says that the connection is lost.
func (c *Client) Submit(r Read) (bool, error) {
	if c.cause != nil {
		return false, c.cause
	}
	start, room := c.region.Start(r.Frame)
	if r.Frame.Addr-start > room || uint64(r.Frame.Len) > room-(r.Frame.Addr-start) {
		return false, fmt.Errorf("read %d bytes to address %#x: they do not fit the frame or extent there", r.Frame.Len, r.Frame.Addr)
	}
	if len(c.free) == 0 || c.open == c.window || int(c.tail-c.head)+c.open == len(c.done) {
		return false, nil
	}
	g, err := c.grants.Grant(start, room, rdma.RemoteWrite)
	if errors.Is(err, rdma.ErrGrantsBusy) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	c.ask(r, g, r.Frame.Addr-start)
	return true, nil
}

// ask queues the request for bytes to go to a place in what was granted.
func (c *Client) ask(r Read, g rdma.Grant, within uint64) {
	last := len(c.free) - 1
	n := c.free[last]
	c.free = c.free[:last]
	s := &c.slots[n]
	s.generation++
	s.read, s.asked, s.sending = r, true, true
	c.open++
	one := [1]umem.Frame{r.Frame}
	c.config.Worker.PassTo(c.granted, one[:])
	q := protocol.Request{ID: s.id(n), RKey: g.RKey, Offset: r.Offset, Length: r.Frame.Len, Address: g.Addr + within}
	cell := c.config.Window + int(n)
	protocol.PutRequest(c.cells.Bytes(cell), &q)
	c.list.Sends = append(c.list.Sends, rdma.SendRequest{ID: uint64(n) << 16, Op: rdma.Send, Flags: rdma.Signaled, SGEs: 1})
	c.list.SendSGEs = append(c.list.SendSGEs, c.cells.SGE(cell))
}

// id is a request's: the slot, and how often it was used.
func (s *slot) id(n int32) uint32 { return s.generation<<16 | uint32(n) }

// slotOf is the slot of an answer, if one is waited for there.
func (c *Client) slotOf(id uint32) (int32, bool) {
	n := int32(id & 0xffff)
	if int(n) >= len(c.slots) {
		return 0, false
	}
	s := &c.slots[n]
	return n, s.asked && s.id(n) == id
}

// answered notes the answer to a request.
func (c *Client) answered(n int32, err error) {
	s := &c.slots[n]
	start, _ := c.region.Start(s.read.Frame)
	c.grants.Release(start)
	one := [1]umem.Frame{s.read.Frame}
	c.granted.PassTo(c.config.Worker, one[:])
	c.done[c.tail%uint32(len(c.done))] = Done{Read: s.read, Err: err}
	c.tail++
	c.open--
	s.asked = false
	c.leave(n)
}

// leave frees a slot that was answered and is not sent any more.
func (c *Client) leave(n int32) {
	if s := &c.slots[n]; !s.asked && !s.sending {
		c.free = append(c.free, n)
	}
}

// fail ends the connection, about which the server is told. What was asked for is answered with the cause.
func (c *Client) fail(cause error) {
	if c.cause != nil {
		return
	}
	c.cause = cause
	if c.conn != nil {
		c.watcher.Go(func() { _ = c.conn.Close() }) // Close says what came of it
	}
	if c.grants != nil {
		c.cause = errors.Join(c.cause, c.grants.Close())
	}
	if err := c.closePair(); err != nil {
		c.cause = errors.Join(c.cause, err) // the server may write to the frames: they stay granted until Close
		return
	}
	for n := range c.slots {
		if c.slots[n].asked {
			c.answered(int32(n), cause)
		}
	}
}

func (c *Client) closePair() error {
	if c.qp == nil {
		return nil
	}
	err := c.qp.Close()
	if err == nil {
		c.qp = nil
	}
	return err
}

// Close ends the connection, and gives frames that Poll has not given to the pool. After an error it may be called again.
func (c *Client) Close() error {
	c.fail(errClosed)
	c.closed = true
	if err := c.closePair(); err != nil {
		return fmt.Errorf("close block client %s: %w", c.config.Name, err)
	}
	var errs []error
	if c.conn != nil {
		errs = append(errs, c.conn.Close())
		c.watcher.Wait()
	}
	errs = append(errs, c.sent.Close(), c.came.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close block client %s: %w", c.config.Name, err)
	}
	for ; c.head != c.tail; c.head++ {
		c.config.Worker.Give([]umem.Frame{c.done[c.head%uint32(len(c.done))].Frame})
	}
	for _, h := range []**umem.Holder{&c.holder, &c.granted} {
		if *h != nil {
			(*h).Close()
		}
		*h = nil
	}
	return nil
}

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

func (c *Client) post() error { return c.list.Post(c.qp) }

func (c *Client) poll() error {
	n, err := c.came.Poll()
	if err == nil {
		err = c.take(n)
	}
	for more := true; more && err == nil; more = n == len(c.sent.Buf) {
		if n, err = c.sent.Poll(); err == nil {
			err = c.posted(n)
		}
	}
	return errors.Join(err, c.post())
}

// posted takes completions of requests, and of grants.
func (c *Client) posted(n int) error {
	for i := range c.sent.Buf[:n] {
		w := &c.sent.Buf[i]
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
	for i := range c.came.Buf[:n] {
		w := &c.came.Buf[i]
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
	r, reason := protocol.ParseResponse(c.cells.Bytes(int(w.ID))[:min(w.Length, protocol.HeaderLen)])
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
	c.list.Receive(uint64(cell), c.cells.SGE(cell))
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
	n, err := c.came.Queue.Spin(c.came.Buf[:1], waitSpin)
	if err == nil {
		err = c.take(n)
	}
	if err != nil {
		c.fail(fmt.Errorf("block client %s: %w", c.config.Name, err))
	}
	if n == 0 {
		t := unix.NsecToTimespec(waitNap.Nanoseconds()) // time.Sleep takes a millisecond where nothing else runs
		_ = unix.Nanosleep(&t, nil)                     // an interrupted sleep is a shorter one
	}
	return nil
}
