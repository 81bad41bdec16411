package transfer

import (
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/ep"
	"github.com/unifiedd/unifiedd/rdma/mr"
	"github.com/unifiedd/unifiedd/umem"
)

// link is the queue pair of one connection with its completion queue, and the buffers of messages. It belongs to one
// thread.
type link struct {
	pair     rdma.QueuePair
	done     ep.Completions
	cells    *ep.ControlBuffers // first those of receives
	receives int
	free     []int // cells to send from
	depth    int   // of the send queue
	open     int   // requests in the send queue, without those of grants
	lkey     uint32
	base     uint64
	most     uint64    // bytes of one WRITE
	grants   *mr.Cache // of a receiver
	heard    func(*message) (keep bool, err error)
	kept     []int // cells of receives that are not posted
	wrote    func(id uint64)
	handle   func(*rdma.WorkCompletion)
	cause    error // why the connection ends

	message  message // the peer's, while it is processed
	requests [1]rdma.SendRequest
	elements [1]rdma.SGE
	receive  [1]rdma.ReceiveRequest
}

// linkConfig says what a link needs.
type linkConfig struct {
	at       *stream.Endpoint
	domain   rdma.ProtectionDomain
	memory   rdma.MemoryRegion // the region in that domain
	holder   *umem.Holder      // of the pool for buffers of messages
	receives int               // messages of the peer that may wait
	sends    int               // messages to the peer that may be under way
	writes   int               // WRITEs that may be under way
	grants   int               // requests of grants
	// heard processes a message of the peer, which is valid during the call. If it keeps the message, the receive is posted again by release, so that the
	// peer cannot send more than there is room for.
	heard func(*message) (keep bool, err error)
	wrote func(id uint64) // nil: there are no WRITEs
}

// The IDs of requests have one of these bits, and a number. The low 16 bits of the number are never those of a grant.
const (
	receiveID = 1 << 63
	sendID    = 1 << 62
	writeID   = 1 << 61
	idBits    = 1<<16 - 1
)

func newLink(c linkConfig) (l *link, err error) {
	l = &link{receives: c.receives, kept: make([]int, 0, c.receives), depth: c.sends + c.writes, lkey: c.memory.LKey(), base: c.memory.Addr(), heard: c.heard, wrote: c.wrote}
	l.handle = l.complete
	if err := l.init(c); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *link) init(c linkConfig) (err error) {
	port, err := c.at.Device.Port(c.at.Port)
	if err != nil {
		return err
	}
	l.most = uint64(port.MaxMessage)
	if l.cells, err = ep.NewControlBuffers(c.holder, c.memory, c.receives+c.sends, messageLen); err != nil {
		return err
	}
	for n := range c.sends {
		l.free = append(l.free, c.receives+n)
	}
	if l.done.Queue, err = c.at.Device.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: c.receives + l.depth + c.grants}); err != nil {
		return err
	}
	l.pair, err = c.domain.NewQueuePair(rdma.QueuePairConfig{Transport: rdma.RC, SendCQ: l.done.Queue, ReceiveCQ: l.done.Queue,
		SendDepth: l.depth + c.grants, RecvDepth: c.receives, SendSGEs: 1, RecvSGEs: 1})
	return err
}

// prepare brings the queue pair to INIT and posts the receives.
func (l *link) prepare(d rdma.Device, s connect.Settings) (connect.Parameters, error) {
	p, err := connect.Prepare(d, l.pair, s)
	if err != nil {
		return p, err
	}
	for n := range l.receives {
		l.post(n)
	}
	return p, l.cause
}

// post posts the receive into a cell.
func (l *link) post(cell int) {
	l.receive[0], l.elements[0] = rdma.ReceiveRequest{ID: receiveID | uint64(cell), SGEs: 1}, l.cells.SGE(cell)
	if _, err := l.pair.PostReceive(l.receive[:], l.elements[:]); err != nil {
		l.fail(fmt.Errorf("post a receive: %w", err))
	}
}

// poll processes completions, and returns their number.
func (l *link) poll() (int, error) { return l.done.Drain(l.handle) }

// complete processes one completion.
func (l *link) complete(c *rdma.WorkCompletion) {
	switch grant := l.grants != nil && l.grants.Done(c); {
	case c.Status != rdma.Success:
		l.fail(c.Err())
	case grant:
	case c.ID&receiveID != 0:
		l.take(int(c.ID&idBits), c)
	case c.ID&sendID != 0:
		l.open--
		l.free = append(l.free, int(c.ID&idBits))
	case c.ID&writeID != 0:
		l.open--
		l.wrote(c.ID &^ writeID)
	}
}

// take processes a message of the peer.
func (l *link) take(cell int, c *rdma.WorkCompletion) {
	if l.cause != nil {
		return
	}
	if c.Kind != rdma.Received {
		l.fail(fmt.Errorf("%w: %v", protocol.BadKind, c.Kind))
		return
	}
	var why protocol.Reason
	l.message, why = parseMessage(l.cells.Bytes(cell)[:min(c.Length, messageLen)])
	if why != protocol.None {
		l.fail(fmt.Errorf("a message of the peer: %w", why))
		return
	}
	keep, err := l.heard(&l.message)
	switch {
	case err != nil:
		l.fail(err)
	case keep:
		l.kept = append(l.kept, cell)
	default:
		l.post(cell)
	}
}

// release posts one receive again whose message was kept.
func (l *link) release() {
	last := len(l.kept) - 1
	cell := l.kept[last]
	l.kept = l.kept[:last]
	l.post(cell)
}

// fail records why the connection ends. The first cause counts, unless it says only that the queue pair was in error.
func (l *link) fail(cause error) {
	if l.cause == nil || errors.Is(l.cause, rdma.WorkFlushed) && !errors.Is(cause, rdma.WorkFlushed) {
		l.cause = cause
	}
}

// room reports whether n more requests can be posted, the last of which is a message.
func (l *link) room(n int) bool { return len(l.free) > 0 && l.open+n <= l.depth && l.cause == nil }

// send sends a message. There must be room.
func (l *link) send(m *message) {
	last := len(l.free) - 1
	cell := l.free[last]
	l.free = l.free[:last]
	m.put(l.cells.Bytes(cell))
	l.requests[0] = rdma.SendRequest{ID: sendID | uint64(cell), Op: rdma.Send, Flags: rdma.Signaled, SGEs: 1}
	l.elements[0] = l.cells.SGE(cell)
	l.submit()
}

// write WRITEs length bytes of the region from addr to the peer's memory. There must be room.
func (l *link) write(id, addr uint64, length uint32, to uint64, rkey uint32) {
	l.requests[0] = rdma.SendRequest{ID: writeID | id, Op: rdma.Write, Flags: rdma.Signaled, SGEs: 1, RemoteAddr: to, RKey: rkey}
	l.elements[0] = rdma.SGE{Addr: l.base + addr, Length: length, LKey: l.lkey}
	l.submit()
}

func (l *link) submit() {
	l.open++
	if _, err := l.pair.PostSend(l.requests[:], l.elements[:]); err != nil {
		l.fail(fmt.Errorf("post a request: %w", err))
	}
}

// close closes the queue pair first: the peer, and the device, then reach no memory any more.
func (l *link) close() (err error) {
	if l.pair != nil {
		if err = l.pair.Close(); err != nil {
			return fmt.Errorf("close the queue pair: %w", err)
		}
		l.pair = nil
	}
	if l.grants != nil {
		if err = l.grants.Close(); err != nil {
			return fmt.Errorf("end the grants: %w", err)
		}
		l.grants = nil
	}
	return l.done.Close()
}
