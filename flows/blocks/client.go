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
	"github.com/unifiedd/unifiedd/rdma/mr"
	"github.com/unifiedd/unifiedd/umem"
)

// Client reads blocks from a server. It belongs to one thread at a time.
//
// The server may write to a frame from Submit on. It keeps that right for some time after it has
// answered (ClientConfig.Grants). A server of this package writes only once. If the caller does not
// trust the server, it must close the client before it relies on the bytes, or copy them.
type Client struct {
	config  ClientConfig
	region  *umem.Region
	holder  *umem.Holder // control buffers
	granted *umem.Holder // frames that the server may write
	sent    ep.Completions
	came    ep.Completions
	cells   *ep.ControlBuffers // for receives, then for the slots' requests
	qp      rdma.QueuePair
	grants  *mr.Cache
	conn    *connect.Conn
	hello   protocol.Hello // the server's

	slots  []slot // places times the window
	free   []int32
	window int
	open   int // unanswered requests
	done   []Done
	head   uint32 // of done, a ring
	tail   uint32
	list   ep.PostList

	gone    atomic.Pointer[error] // why the connection ended
	watcher sync.WaitGroup
	cause   error // the first error, after which no request is sent
	closed  bool
}

// slot is the place of one request.
type slot struct {
	read       Read
	generation uint32
	asked      bool // the request is not answered yet
	sending    bool // the SEND has not completed: the device may retransmit it
}

// Read is a request for as many bytes as the frame is long.
type Read struct {
	Offset uint64     // on what is served; a multiple of Align, as is the frame's length
	Frame  umem.Frame // where the bytes go: a frame or extent that the worker holds
	Token  uint64     // returned with the answer
}

// Done is an answered request. Its frame is the worker's again.
type Done struct {
	Read
	// Err is nil if the frame has the bytes, a protocol.Reason if the server refused, or another
	// error if the connection is lost.
	Err error
}

// errClosed is the cause after Close.
var errClosed = errors.New("the client is closed")

// Size returns the number of bytes that are served.
func (c *Client) Size() uint64 { return c.hello.Size }

// Align returns the unit of offsets and lengths, which must be multiples of it.
func (c *Client) Align() uint32 { return c.hello.Align }

// Longest returns the longest request in bytes.
func (c *Client) Longest() uint32 { return c.hello.Message }

// Window returns how many requests may be outstanding.
func (c *Client) Window() int { return c.window }

// Peer returns the server's identity from the handshake.
func (c *Client) Peer() connect.Peer { return c.conn.Peer() }

// Submit queues a request, which Poll posts. It returns false while the window is full or a grant
// is being made. From then on the server may write to the frame. An error means that the frame
// cannot be used, or that the connection is lost.
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
	if errors.Is(err, mr.ErrBusy) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	c.ask(r, g, r.Frame.Addr-start)
	return true, nil
}

// ask queues the request for bytes. within is the destination in the grant.
func (c *Client) ask(r Read, g mr.Grant, within uint64) {
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

// id returns the ID of a request, made of the slot and the number of its uses.
func (s *slot) id(n int32) uint32 { return s.generation<<16 | uint32(n) }

// slotOf returns the slot of an answer, if that slot waits for one.
func (c *Client) slotOf(id uint32) (int32, bool) {
	n := int32(id & 0xffff)
	if int(n) >= len(c.slots) {
		return 0, false
	}
	s := &c.slots[n]
	return n, s.asked && s.id(n) == id
}

// answered records the answer to a request.
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

// leave frees a slot whose request is answered and whose SEND has completed.
func (c *Client) leave(n int32) {
	if s := &c.slots[n]; !s.asked && !s.sending {
		c.free = append(c.free, n)
	}
}

// fail ends the connection and informs the server. All open requests get the cause as their answer.
func (c *Client) fail(cause error) {
	if c.cause != nil {
		return
	}
	c.cause = cause
	if c.conn != nil {
		c.watcher.Go(func() { _ = c.conn.Close() }) // Client.Close reports the error
	}
	if c.grants != nil {
		c.cause = errors.Join(c.cause, c.grants.Close())
	}
	if err := c.closePair(); err != nil {
		c.cause = errors.Join(c.cause, err) // the frames stay granted until Close: the server may still write to them
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

// Close ends the connection, and gives frames that Poll has not returned back to the region. After
// an error it may be called again.
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

// Poll posts submitted requests and fills dst with answered ones, in any order. When there are no
// more, the error says that the connection is lost.
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

// posted processes completions of requests and of grants.
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

// take processes answers.
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

// errStray is an answer without a request.
var errStray = errors.New("the server answered a request that was not made")

// answer processes one answer: a WRITE with immediate, or a response.
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

// receive queues the receive of a control buffer.
func (c *Client) receive(cell int) {
	c.list.Receive(uint64(cell), c.cells.SGE(cell))
}

const (
	waitSpin = 20 * time.Microsecond
	waitNap  = 20 * time.Microsecond
)

// Read reads as many bytes as the frame is long, from an offset of the target, and waits for them.
// No other request may be open.
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

// wait waits a moment. If ctx ends while a request is open it closes the connection, which returns
// the frame.
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
		t := unix.NsecToTimespec(waitNap.Nanoseconds()) // time.Sleep takes a millisecond if nothing else runs
		_ = unix.Nanosleep(&t, nil)                     // an interrupted sleep is a shorter one
	}
	return nil
}
