package stream

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// Receiver takes messages from many senders, each over a queue pair of its own; the receives are shared. Serve
// brings the senders. All other methods but Stats are the worker's thread's.
//
// A round of the worker: Recv gives messages; Supply takes frames for further ones; Acknowledge says which are taken
// care of; Poll and Kick send what peers are to know. A frame is the flow's from Recv until it gives it back by Supply, whole and
// empty, and its message lies in one piece: Addr and Len have the header and the payload.
//
// Of a received frame, Side.Queue is the number of its session, for Acknowledge and Reject. It is no other session's while a message
// of this one is not acknowledged, whether its peer is connected or not.
//
// Supply frames for Peers times Window messages, and as many as the flow itself keeps, and each peer has its whole window. With
// fewer each is sure of one message under way, as long as there is one frame for each of Peers.
//
// A receive that a peer had begun to fill when it vanished comes back when its queue pair is ended. The kernel's Soft-RoCE (seen with
// Linux 7.2) forgets it where the receives are shared: there the frame is the port's until Close, and one receive is promised that is
// not there, so that some peer waits for others.
type Receiver struct {
	config  ReceiverConfig
	region  *umem.Region
	port    *rdma.MessagePort
	batcher rdma.Batcher            // the device, where it is one; else nil
	shared  rdma.SharedReceiveQueue // the port's
	queues  [2]rdma.CompletionQueue // the port's: of sends, of receives
	depth   int                     // receives

	slots        []slot  // by the port's number of the queue pair
	peers        []*peer // attached
	news         slotSet // of peers that may have to be told something, or shown
	wants        slotSet // of peers that may be promised more
	turn         int     // the slot that the next credits begin with
	needy        int     // and where to look first for one that has none
	sessions     sessions
	participants []participant
	posted       int // receives that no message came for
	available    int // of those, how many are not promised to a peer

	own    *umem.Holder // of the frames
	frames []umem.Frame // of each slot, for progress messages,
	tells  int          // of which so many may be on their way
	lasts  slotSet      // of peers whose last one is
	polls  int          // calls since a message came
	short  bool         // a peer could not be told yet

	batch   [batchSize]umem.Frame
	numbers [batchSize]int
	one     [1]umem.Frame
	ready   frameRing // checked messages, to be given by Recv
	back    frameRing // frames of refused ones, to be receives again

	// With Write only:
	free     frameRing         // supplied, and promised to nobody
	granted  *umem.Holder      // of what peers may write
	bindable rdma.MemoryRegion // that windows are bound to; nil where grants are registrations

	stats  receiverStats
	mu     sync.Mutex // over what Stats reads of sessions and peers but for counters
	closed bool
}

// batchSize is how many messages are taken from the port at once.
const batchSize = 64

// OpenReceiver makes a receiver without peers. It may be called on any thread, while the Worker's is not in its book.
func OpenReceiver(c ReceiverConfig) (*Receiver, error) {
	c.setDefaults()
	r := &Receiver{config: c}
	if err := r.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open receiver %s: %w", c.Name, err), r.Close())
	}
	return r, nil
}

func (r *Receiver) open() error {
	c := &r.config
	if err := c.check(); err != nil {
		return err
	}
	r.region = c.Endpoint.Region
	r.batcher, _ = c.Endpoint.Device.(rdma.Batcher)
	r.sessions, r.tells = newSessions(c.Peers), c.tells()
	if err := r.openPort(); err != nil {
		return err
	}
	r.depth = r.port.Limits().Supply
	r.ready, r.back = newFrameRing(r.depth), newFrameRing(r.depth)
	if err := r.takeSlots(); err != nil || !c.Write {
		return err
	}
	return r.openWrites()
}

// openPort makes the port with its queues. They are deep enough for a peer that sends a window too much.
func (r *Receiver) openPort() (err error) {
	c, d := &r.config, r.config.Endpoint.Device
	depth := min((c.Peers+1)*c.Window, d.Capabilities().MaxSharedRequests, d.Capabilities().MaxCompletions)
	p := rdma.PortConfig{Name: c.Name, Worker: c.Worker, Memory: c.Endpoint.Memory, Landing: c.Landing, Events: c.Events}
	if c.Spread {
		p.Spread = uint64(c.Landing) + uint64(c.Message)
	}
	defer func() {
		if r.port == nil { // which closes them otherwise
			err = errors.Join(err, closeQueues(p.Shared, p.SendCQ, p.ReceiveCQ))
		}
	}()
	if p.Shared, err = c.Endpoint.Domain.NewSharedReceiveQueue(rdma.SharedReceiveQueueConfig{Depth: depth, SGEs: 1}); err != nil {
		return err
	}
	if p.SendCQ, err = d.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: c.Peers * r.sends(), Events: c.Events}); err != nil {
		return err
	}
	if p.ReceiveCQ, err = d.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: depth, Events: c.Events}); err != nil {
		return err
	}
	r.shared, r.queues = p.Shared, [2]rdma.CompletionQueue{p.SendCQ, p.ReceiveCQ}
	port := p
	p.Shared, p.SendCQ, p.ReceiveCQ = nil, nil, nil // the port closes them, also when it does not open
	r.port, err = rdma.OpenPort(port)
	return err
}

// sends is how many requests the send queue of a peer has room for.
func (r *Receiver) sends() int { return r.tells + r.config.requests() }

// closeQueues closes those that there are, in order.
func closeQueues(queues ...interface{ Close() error }) error {
	var errs []error
	for _, q := range queues {
		if q != nil {
			errs = append(errs, q.Close())
		}
	}
	return errors.Join(errs...)
}

// Recv gives whole messages, checked and of each session in order. They are the caller's until it supplies their frames again. When dst
// is filled there may be more, which FD does not tell of.
func (r *Receiver) Recv(dst []umem.Frame) int {
	for more := true; more && r.ready.len() < len(dst); {
		n := r.absorb()
		more = n == batchSize || r.config.Write && n > 0 // else a look in vain, which would have packets acknowledged in front of the messages' answers
	}
	return r.ready.pop(dst)
}

// Supply posts receives into frames and extents, and gives peers credits for them. It returns how many it took.
func (r *Receiver) Supply(empty []umem.Frame) int {
	if r.closed {
		return 0
	}
	n := min(len(empty), r.depth-r.posted-r.ready.len()-r.back.len())
	if r.config.Write {
		return r.keep(empty[:n])
	}
	return r.post(empty[:n])
}

// post posts receives and gives credits.
func (r *Receiver) post(empty []umem.Frame) int {
	n := r.port.Supply(empty)
	r.posted += n
	r.available += n
	if n > 0 {
		r.grant()
	}
	return n
}

// Poll finds out how sends ended, and sends progress to peers that it is due to. now is the time of the round. The error says that
// the device is gone; peers that fail are none.
func (r *Receiver) Poll(now time.Time) error {
	if r.closed {
		return errClosed
	}
	r.recycle()
	if r.config.Unacknowledged > 0 { // acknowledgements make room
		r.grant()
	}
	err := r.speak(now)
	if r.polls++; r.polls > 2 || r.short || r.config.Write {
		short := r.short
		if r.reap(); short {
			err = errors.Join(err, r.speak(now))
		}
	}
	if r.waits() {
		r.port.Wake()
	}
	return err
}

// speak tells peers what they are to know. It comes before reaping, and that only when nothing has come for two rounds, or it is needed: looking
// for completions where there are none has the device acknowledge what came, by a call of its own, where messages to the peers would take
// that along.
func (r *Receiver) speak(now time.Time) error {
	r.short = false
	said := r.stats.own.progress
	r.sendProgress(now)
	r.publish()
	return r.kick(r.stats.own.progress - said)
}

// kick posts what is queued. What so many peers are told goes out together, where the device can do that.
func (r *Receiver) kick(told uint64) error {
	if told > 1 && r.batcher != nil {
		r.batcher.Begin()
		defer r.batcher.End()
	}
	return r.port.Kick()
}

// recycle has frames of refused messages receive again.
func (r *Receiver) recycle() {
	for r.back.len() > 0 {
		n := r.post(r.back.front(batchSize))
		if r.back.skip(n); n == 0 {
			return
		}
	}
}

// Kick posts what Supply and Poll queued. Poll does so, too: it is for who supplies after it.
func (r *Receiver) Kick() error {
	if r.closed {
		return errClosed
	}
	return r.port.Kick()
}

// FD polls readable when Recv or Poll has something to do; -1 without Events, and after Close.
func (r *Receiver) FD() int { return r.port.FD() }

// Limits says what it takes: Message is the longest message, Supply how many frames it holds.
func (r *Receiver) Limits() umem.Limits {
	return umem.Limits{Message: uint64(r.config.Message), Frames: 1, Supply: r.depth}
}

// Idle reports whether nothing is left that Recv would give, and no peer is to be told anything.
func (r *Receiver) Idle() bool {
	if r.ready.len() > 0 {
		return false
	}
	for _, p := range r.peers {
		if p.due(r.quantum()) || p.granted != nil && p.granted.came > p.session.taken && !p.state.ended() {
			return false
		}
	}
	return true
}

var errClosed = errors.New("the receiver is closed")

// Close ends all peers and gives all frames to the pool. Serve has returned before. After an error it may be called
// again.
func (r *Receiver) Close() error {
	if r.closed {
		return nil
	}
	if err := r.closeParts(); err != nil {
		return fmt.Errorf("close receiver %s: %w", r.config.Name, err) // peers may still write to frames
	}
	r.closed = true
	r.giveAll()
	return nil
}

// closeParts ends grants, then queue pairs, and then what windows were bound to.
func (r *Receiver) closeParts() error {
	var errs []error
	for _, p := range r.peers {
		if p.granted != nil {
			errs = append(errs, p.granted.close())
		}
	}
	if r.port != nil {
		errs = append(errs, r.port.Close())
	}
	if r.bindable != nil {
		errs = append(errs, r.bindable.Close())
	}
	return errors.Join(errs...)
}

// giveAll gives the worker's frames that are ours to the pool. The port's are there already.
func (r *Receiver) giveAll() {
	for _, h := range []*umem.Holder{r.granted, r.own} {
		if h != nil {
			h.Close()
		}
	}
	for _, q := range []*frameRing{&r.ready, &r.back, &r.free} {
		for q.pop(r.one[:]) == 1 {
			r.config.Worker.Give(r.one[:])
		}
	}
	r.slots, r.peers = nil, nil
}

// quantum is how many credits are worth a progress message of their own.
func (r *Receiver) quantum() uint64 { return uint64(max(1, r.config.Window/4)) }
