package ep

import (
	"fmt"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// Completions has a completion queue and a buffer for its completions.
type Completions struct {
	Queue rdma.CompletionQueue
	Buf   [64]rdma.WorkCompletion
	armed bool // the queue will signal its next completion
	came  bool // completions arrived since the queue was armed: it has signalled, or is about to
}

// Poll polls completions into Buf and returns their number.
func (c *Completions) Poll() (int, error) {
	n, err := c.Queue.Poll(c.Buf[:])
	c.came = c.came || n > 0
	return n, err
}

// maxPolls limits the number of polls in one Drain, so that a busy queue does not keep the worker.
const maxPolls = 8

// Drain polls the queue until it is empty, at most 8 times, and calls handle for each completion. It
// returns their number. The completions before an error have been handled.
func (c *Completions) Drain(handle func(*rdma.WorkCompletion)) (n int, err error) {
	for range maxPolls {
		got, err := c.Poll()
		if err != nil {
			return n, err
		}
		for i := range c.Buf[:got] {
			handle(&c.Buf[i])
		}
		if n += got; got < len(c.Buf) {
			break
		}
	}
	return n, nil
}

// Arm arms the queue if wanted is set: it then signals its next completion. If the queue was not
// armed before, Arm returns true, and the caller must poll again. woken means that an event woke
// the caller. It takes a system call to ask whether the queue has signalled, so Arm asks only if
// woken is set or completions arrived.
func (c *Completions) Arm(wanted, woken bool) (again bool, err error) {
	if c.armed && (c.came || woken) {
		events, err := c.Queue.Acknowledge()
		if err != nil {
			return false, err
		}
		c.armed = events == 0
	}
	if c.armed || !wanted {
		return false, nil
	}
	c.armed, c.came = true, false
	return true, c.Queue.Arm(false)
}

// Close closes the queue, if there is one. After an error it may be called again.
func (c *Completions) Close() error {
	if c.Queue == nil {
		return nil
	}
	err := c.Queue.Close()
	if err == nil {
		c.Queue = nil
	}
	return err
}

// ControlBuffers are numbered buffers of one size, in frames that have no other use.
type ControlBuffers struct {
	region *umem.Region
	frames []umem.Frame
	size   int
	each   int // buffers in a frame
	base   uint64
	lkey   uint32
}

// NewControlBuffers takes frames of h's pool for n buffers of size bytes, registered as m. The frames
// stay with h, also after an error.
func NewControlBuffers(h *umem.Holder, m rdma.MemoryRegion, n, size int) (*ControlBuffers, error) {
	r := h.Book().Region()
	b := &ControlBuffers{region: r, size: size, each: int(r.FrameSize()) / size, base: m.Addr(), lkey: m.LKey()}
	want := (n + b.each - 1) / b.each
	b.frames = make([]umem.Frame, want)
	if got := h.Take(b.frames); got < want {
		return nil, fmt.Errorf("the pool has %d of %d frames for control messages: open a larger region (region.size), or serve fewer clients at once", got, want)
	}
	return b, nil
}

func (b *ControlBuffers) addr(n int) uint64 {
	return b.frames[n/b.each].Addr + uint64(n%b.each*b.size)
}

// Bytes returns the memory of buffer n.
func (b *ControlBuffers) Bytes(n int) []byte { return b.region.At(b.addr(n), uint64(b.size)) }

// SGE returns the element that names buffer n in work requests.
func (b *ControlBuffers) SGE(n int) rdma.SGE {
	return rdma.SGE{Addr: b.base + b.addr(n), Length: uint32(b.size), LKey: b.lkey}
}

// PostList collects work requests of one queue pair, to post them together.
type PostList struct {
	Sends       []rdma.SendRequest
	SendSGEs    []rdma.SGE
	Receives    []rdma.ReceiveRequest
	ReceiveSGEs []rdma.SGE
}

// NewPostList makes a list with room for these numbers of requests and elements.
func NewPostList(sends, sendSGEs, receives, receiveSGEs int) PostList {
	return PostList{
		Sends: make([]rdma.SendRequest, 0, sends), SendSGEs: make([]rdma.SGE, 0, sendSGEs),
		Receives: make([]rdma.ReceiveRequest, 0, receives), ReceiveSGEs: make([]rdma.SGE, 0, receiveSGEs),
	}
}

// Receive adds a receive into the elements.
func (l *PostList) Receive(id uint64, sges ...rdma.SGE) {
	l.Receives = append(l.Receives, rdma.ReceiveRequest{ID: id, SGEs: uint32(len(sges))})
	l.ReceiveSGEs = append(l.ReceiveSGEs, sges...)
}

// Post posts the requests of the list and empties it. It posts receives first: the peer may send
// into them as soon as it receives the sends.
func (l *PostList) Post(q rdma.QueuePair) error {
	if len(l.Receives) > 0 {
		if _, err := q.PostReceive(l.Receives, l.ReceiveSGEs); err != nil {
			return fmt.Errorf("post receives: %w", err)
		}
		l.Receives, l.ReceiveSGEs = l.Receives[:0], l.ReceiveSGEs[:0]
	}
	if len(l.Sends) > 0 {
		if _, err := q.PostSend(l.Sends, l.SendSGEs); err != nil {
			return fmt.Errorf("post sends: %w", err)
		}
		l.Sends, l.SendSGEs = l.Sends[:0], l.SendSGEs[:0]
	}
	return nil
}

// Reset empties the list.
func (l *PostList) Reset() {
	l.Sends, l.SendSGEs, l.Receives, l.ReceiveSGEs = l.Sends[:0], l.SendSGEs[:0], l.Receives[:0], l.ReceiveSGEs[:0]
}

// WorkID makes the ID of a work request: an index, and the generation of the session that posted
// it. Sessions are used again, and a completion of an earlier session must not count for the
// present one.
func WorkID(generation uint32, index int) uint64 {
	return uint64(generation)<<32 | uint64(uint32(index))
}

// SplitWorkID returns the parts of a WorkID. The caller checks the index before use.
func SplitWorkID(id uint64) (generation uint32, index int) { return uint32(id >> 32), int(uint32(id)) }
