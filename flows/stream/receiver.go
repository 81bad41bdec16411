package stream

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/fifo"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/msg"
	"github.com/unifiedd/unifiedd/umem"
)

// Receiver receives messages from many senders, each over its own queue pair. The queue pairs share
// their receives. Serve accepts the senders. All other methods except Stats belong to the worker's
// thread.
//
// In a round of the worker, Recv returns messages, Supply gives empty frames, Acknowledge says
// which messages are processed, and Poll and Kick send progress to the peers. The flow owns a frame
// from Recv until it gives a whole, empty one to Supply. The message is contiguous: Addr and Len
// cover header and payload.
//
// Side.Queue of a received frame is the number of its session, for Acknowledge and Reject. No other
// session gets that number while a message of this one is not acknowledged, even if its peer is
// disconnected.
//
// Supply Peers times Window frames, plus the frames that the flow keeps, to give each peer its
// whole window. With fewer frames each peer can still send one message at a time, if there is one
// frame for each of Peers.
//
// If a peer vanishes while it fills a receive, the receive returns when the queue pair is closed.
// The kernel's Soft-RoCE (seen with Linux 7.2) loses it if the receives are shared. The port then
// keeps the frame until Close, and one credit has no receive behind it, so that one peer may have
// to wait for others.
type Receiver struct {
	config  ReceiverConfig
	region  *umem.Region
	port    *msg.Port
	batcher rdma.Batcher            // the device if it implements it; otherwise nil
	shared  rdma.SharedReceiveQueue // the port's
	queues  [2]rdma.CompletionQueue // the port's: of sends, of receives
	depth   int                     // receives

	slots        []slot    // by the port's number of the queue pair
	peers        []*peer   // attached
	news         slotSet   // peers that may need a progress message, or whose counters changed
	wants        slotSet   // peers that may get more credits
	turn         int       // the slot where the next credits begin
	needy        int       // the slot where the search for a peer without credits begins
	sessions     *sessions // one table for all devices
	participants []participant
	posted       int // receives without a message
	available    int // those of posted for which no peer has a credit

	own    *umem.Holder // of the frames
	frames []umem.Frame // by slot: for progress messages
	tells  int          // progress messages of a slot that may be in flight
	lasts  slotSet      // peers whose final one is in flight
	polls  int          // calls since the last message
	short  bool         // a progress message had no room

	batch   [batchSize]umem.Frame
	numbers [batchSize]int
	one     [1]umem.Frame
	ready   *fifo.Ring[umem.Frame] // checked messages for Recv, of all devices: their order is that of Recv
	back    fifo.Ring[umem.Frame]  // frames of refused messages, to be posted again
	early   int                    // messages that came here and wait for their turn
	freed   bool                   // another path has brought messages: peers may get more credits

	others []*Receiver // at the other devices
	device int         // its number, from 0

	// With Write only:
	free     fifo.Ring[umem.Frame] // supplied, without a credit
	granted  *umem.Holder          // frames that peers may write
	bindable rdma.MemoryRegion     // for binding windows; nil if grants are registrations

	stats  receiverStats
	closed bool
}

// batchSize is how many messages are received from the port at once.
const batchSize = 64

// OpenReceiver makes a receiver without peers. It may be called from any thread while the worker
// does not run.
func OpenReceiver(c ReceiverConfig) (*Receiver, error) {
	c.setDefaults()
	r := &Receiver{config: c, sessions: newSessions(c.Peers), ready: &fifo.Ring[umem.Frame]{}}
	if err := errors.Join(r.open(), r.openOthers()); err != nil {
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
	r.tells = c.tells()
	if err := r.openPort(); err != nil {
		return err
	}
	r.depth = r.port.Limits().Supply
	*r.ready, r.back = fifo.New[umem.Frame](r.ready.Cap()+r.depth), fifo.New[umem.Frame](r.depth)
	if err := r.takeSlots(); err != nil || !c.Write {
		return err
	}
	return r.openWrites()
}

// openPort makes the port with its queues. They have room for a peer that exceeds its window once.
func (r *Receiver) openPort() (err error) {
	c, d := &r.config, r.config.Endpoint.Device
	depth := min((c.Peers+1)*c.Window, d.Capabilities().MaxSharedRequests, d.Capabilities().MaxCompletions)
	p := msg.Config{Name: c.Name, Worker: c.Worker, Memory: c.Endpoint.Memory, Landing: c.Landing, Events: c.Events, OnArm: c.OnArm}
	if c.Spread {
		p.Spread = uint64(c.Landing) + uint64(c.Message)
	}
	defer func() {
		if r.port == nil { // otherwise the port closes them
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
	p.Shared, p.SendCQ, p.ReceiveCQ = nil, nil, nil // the port closes them, even if it fails to open
	r.port, err = msg.Open(port)
	return err
}

// sends returns the depth of a peer's send queue.
func (r *Receiver) sends() int { return r.tells + r.config.requests() }

// closeQueues closes the queues that exist, in order.
func closeQueues(queues ...interface{ Close() error }) error {
	var errs []error
	for _, q := range queues {
		if q != nil {
			errs = append(errs, q.Close())
		}
	}
	return errors.Join(errs...)
}

// Recv returns whole, checked messages, in order for each session. The caller owns their frames
// until it supplies them again. If dst is full there may be more, which FD does not report.
func (r *Receiver) Recv(dst []umem.Frame) int {
	r.fill(len(dst))
	for _, o := range r.others {
		o.fill(len(dst))
	}
	return r.ready.Read(dst)
}

// fill receives from the device until there are n messages for Recv.
func (r *Receiver) fill(n int) {
	for more := true; more && r.ready.Len() < n; {
		n := r.absorb()
		more = n == batchSize || r.config.Write && n > 0 // an empty poll would make the device send ACKs before the answers to the messages
	}
}

// Supply posts receives into frames and extents, and gives peers credits for them. It returns the
// number of frames and extents that it used. Of several devices, those with the fewest receives get them first.
func (r *Receiver) Supply(empty []umem.Frame) int {
	if len(r.others) > 0 {
		return r.share(empty)
	}
	return r.supply(empty)
}

// supply is Supply for one device.
func (r *Receiver) supply(empty []umem.Frame) int {
	if r.closed {
		return 0
	}
	n := max(0, min(len(empty), r.depth-r.posted-r.ready.Len()-r.back.Len()-r.early)) // ready may have messages of other devices
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

// Poll processes completions of sends, and sends progress messages that are due. now is the time of
// the round. The error says that the device is gone; failures of peers are not errors.
func (r *Receiver) Poll(now time.Time) error {
	err := r.poll(now)
	for _, o := range r.others {
		err = errors.Join(err, o.poll(now))
	}
	return err
}

// poll is Poll for one device.
func (r *Receiver) poll(now time.Time) error {
	if r.closed {
		return errClosed
	}
	r.recycle()
	if r.config.Unacknowledged > 0 || r.freed { // an acknowledgement, or another path's message, may allow more credits
		r.freed = false
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

// speak sends progress messages. Afterwards it polls for their completions, but only if nothing has
// arrived for two rounds or if it must. An empty poll makes the device send its ACKs in a separate
// system call, while a message to the peer would carry them along.
func (r *Receiver) speak(now time.Time) error {
	r.short = false
	said := r.stats.own.progress
	r.sendProgress(now)
	r.publish()
	return r.kick(r.stats.own.progress - said)
}

// kick posts the queued requests. If the device can batch, it sends progress messages to several
// peers together.
func (r *Receiver) kick(told uint64) error {
	if told > 1 && r.batcher != nil {
		r.batcher.Begin()
		defer r.batcher.End()
	}
	return r.port.Kick()
}

// recycle posts the frames of refused messages again.
func (r *Receiver) recycle() {
	for r.back.Len() > 0 {
		n := r.post(r.back.Front(batchSize))
		if r.back.Skip(n); n == 0 {
			return
		}
	}
}

// Kick posts the receives that Supply has queued. Poll does the same; Kick is for a worker that
// supplies after Poll.
func (r *Receiver) Kick() error {
	if r.closed {
		return errClosed
	}
	err := r.port.Kick()
	for _, o := range r.others {
		err = errors.Join(err, o.port.Kick())
	}
	return err
}

// FD returns a descriptor that polls readable when Recv or Poll has work; -1 without Events and
// after Close. It is that of the first device: FDs has all.
func (r *Receiver) FD() int { return r.port.FD() }

// FDs appends the descriptors of all devices.
func (r *Receiver) FDs(dst []unix.PollFd) []unix.PollFd {
	if fd := r.FD(); fd >= 0 {
		dst = append(dst, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	for _, o := range r.others {
		dst = o.FDs(dst)
	}
	return dst
}

// Arm makes FDs poll readable when Recv or Poll has work, with ReceiverConfig.OnArm. It reports whether one of them has
// work already, or may have some of which nothing tells.
func (r *Receiver) Arm() (work bool) {
	if r.closed {
		return false
	}
	work = r.port.Arm() || r.ready.Len() > 0 || r.back.Len() > 0 || r.short || r.waits()
	for _, o := range r.others {
		work = o.Arm() || work
	}
	return work
}

// Limits returns the limits: Message is the longest message, Supply how many frames the receiver
// holds.
func (r *Receiver) Limits() umem.Limits {
	depth := r.depth
	for _, o := range r.others {
		depth += o.depth
	}
	return umem.Limits{Message: uint64(r.config.Message), Frames: 1, Supply: depth}
}

// Idle reports whether Recv has no message left and no progress message is due.
func (r *Receiver) Idle() bool {
	if r.ready.Len() > 0 {
		return false
	}
	for _, p := range r.peers {
		if p.due(r.quantum()) || p.granted != nil && p.granted.came > p.session.taken && !p.state.ended() {
			return false
		}
	}
	for _, o := range r.others {
		if !o.Idle() {
			return false
		}
	}
	return true
}

var errClosed = errors.New("the receiver is closed")

// Close ends all peers and gives all frames back to the region. Serve must have returned before.
// After an error Close may be called again.
func (r *Receiver) Close() error {
	if r.closed {
		return nil
	}
	if err := errors.Join(r.closeOthers(), r.closeParts()); err != nil {
		return fmt.Errorf("close receiver %s: %w", r.config.Name, err) // peers may still write to frames
	}
	r.closed = true
	r.giveAll()
	return nil
}

// closeParts closes grants, then queue pairs, then the registration to which windows were bound.
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

// giveAll gives the receiver's frames back to the region. The port has done so with its own.
func (r *Receiver) giveAll() {
	for _, h := range []*umem.Holder{r.granted, r.own} {
		if h != nil {
			h.Close()
		}
	}
	for _, q := range []*fifo.Ring[umem.Frame]{r.ready, &r.back, &r.free} {
		for q.Read(r.one[:]) == 1 {
			r.config.Worker.Give(r.one[:])
		}
	}
	r.giveEarly()
	r.slots, r.peers = nil, nil
}

// quantum is the number of credits that justifies a separate progress message.
func (r *Receiver) quantum() uint64 { return uint64(max(1, r.config.Window/4)) }
