package fanout

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/umem"
)

// maxPeers is the largest number of peers of a Fanout.
const maxPeers = 64

// Peer is the configuration of a receiver.
type Peer struct {
	Sender *stream.Sender // owned by the fanout from Open on
	Policy Policy
}

// Config configures a Fanout.
type Config struct {
	Name        string       // for logs, errors and status
	Worker      *umem.Holder // holds the frames outside the fanout; shared with the senders
	Peers       []Peer
	Choose      Choose
	Acknowledge Acknowledge
	Frames      int // the most frames of a message; default 3
}

// Fanout sends messages to several peers.
type Fanout struct {
	name     string
	worker   *umem.Holder
	shared   *umem.Holder
	region   *umem.Region
	peers    []*peer
	choice   Choose
	answer   Acknowledge
	turn     int // of Round: the next peer
	ledger   refTable
	results  [64]stream.Result
	hopeless error // a message can never be acknowledged
	closed   bool
}

// Open makes a fanout. Any thread may call it while no other thread uses the worker's book. If it
// fails, it closes the senders.
func Open(c Config) (*Fanout, error) {
	f := &Fanout{name: c.Name, worker: c.Worker, choice: c.Choose, answer: c.Acknowledge}
	for _, p := range c.Peers {
		f.peers = append(f.peers, &peer{sender: p.Sender, policy: p.Policy})
	}
	if err := f.open(&c); err != nil {
		return nil, errors.Join(fmt.Errorf("open fanout %s: %w", c.Name, err), f.Close())
	}
	return f, nil
}

func (f *Fanout) open(c *Config) (err error) {
	if c.Frames == 0 {
		c.Frames = 3
	}
	switch {
	case c.Worker == nil:
		return errors.New("it needs a Worker")
	case len(c.Peers) < 1 || len(c.Peers) > maxPeers:
		return fmt.Errorf("there are %d peers: it takes 1 to %d", len(c.Peers), maxPeers)
	case c.Frames < 1 || c.Frames > 255:
		return fmt.Errorf("messages of %d frames: they have 1 to 255", c.Frames)
	}
	if err := c.checkWords(); err != nil {
		return err
	}
	messages := 0
	for _, p := range f.peers {
		messages += p.sender.Depth()
	}
	f.region, f.ledger = c.Worker.Book().Region(), newRefTable(messages, c.Frames)
	f.shared, err = c.Worker.Book().NewHolder(umem.OwnerShared, "fanout "+c.Name)
	return err
}

// Run connects all peers, and reconnects them until ctx ends: see stream.Sender.Run.
func (f *Fanout) Run(ctx context.Context, do stream.Doer) error {
	errs := make([]error, len(f.peers))
	var all sync.WaitGroup
	for i, p := range f.peers {
		all.Go(func() { errs[i] = p.sender.Run(ctx, do) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Fits reports whether a message with this number of frames and bytes can be sent to every peer.
func (f *Fanout) Fits(frames int, length uint32) bool {
	for _, p := range f.peers {
		if !p.sender.Fits(frames, length) {
			return false
		}
	}
	return frames <= f.ledger.each
}

// Offer takes a message. The fanout owns its frames until Free returns them. Offer returns false if
// it did not take the message: a peer has no room and its policy is Wait, or Acknowledge does not
// permit skipping that peer, or too many messages are in flight. The caller then offers it again
// later. Acknowledged returns the token. The stamp, in nanoseconds since 1970, is sent to the
// receivers.
//
// A message that is too long for a peer is dropped there. If messages are acknowledged, the caller
// must check that they fit (Fits); otherwise Poll fails when a message cannot be acknowledged.
func (f *Fanout) Offer(message []umem.Frame, token, stamp uint64) bool {
	return f.Relay(message, token, stamp, protocol.Origin{})
}

// Relay is Offer for a message that was received in another session. It sends origin to receivers
// that accept origins.
func (f *Fanout) Relay(message []umem.Frame, token, stamp uint64, origin protocol.Origin) bool {
	if !f.ledger.room(len(message)) {
		return false
	}
	length := lengthOf(message)
	chosen := f.choose(message)
	fit := f.fitting(chosen, len(message), length)
	need := f.answer.need(bits.OnesCount64(chosen))
	open, wait := f.peersWithRoom(fit, need)
	switch {
	case wait:
		return false
	case bits.OnesCount64(fit) < need:
		f.hopeless = fmt.Errorf("fanout %s: a message of %d bytes in %d frames is too long for its peers", f.name, length, len(message))
	case open != fit && f.connected(open) < need:
		return false
	}
	f.count(chosen, fit, open)
	f.worker.PassTo(f.shared, message)
	f.turn = (bits.TrailingZeros64(chosen) + 1) % len(f.peers)
	f.send(message, length, stamp, origin, open, f.ledger.begin(message, token, open, need))
	return true
}

// send passes a message to the chosen peers. They have room.
func (f *Fanout) send(message []umem.Frame, length uint32, stamp uint64, origin protocol.Origin, peers uint64, id uint32) {
	if peers == 0 {
		return
	}
	sum := uint32(0)
	for _, m := range message {
		sum = protocol.ChecksumMore(sum, f.region.Bytes(m))
	}
	for left := peers; left != 0; left &= left - 1 {
		f.peers[bits.TrailingZeros64(left)].sender.Relay(message, length, sum, stamp, uint64(id), origin)
	}
}

func lengthOf(message []umem.Frame) (length uint32) {
	for _, m := range message {
		length += m.Len
	}
	return length
}

// fitting returns the chosen peers for which the message is not too long.
func (f *Fanout) fitting(chosen uint64, frames int, length uint32) (fit uint64) {
	for left := chosen; left != 0; left &= left - 1 {
		n := bits.TrailingZeros64(left)
		if frames <= f.ledger.each && f.peers[n].sender.Fits(frames, length) {
			fit |= 1 << n
		}
	}
	return fit
}

// connected returns how many of these peers are connected.
func (f *Fanout) connected(peers uint64) (n int) {
	for ; peers != 0; peers &= peers - 1 {
		if f.peers[bits.TrailingZeros64(peers)].sender.Connected() {
			n++
		}
	}
	return n
}

// Free fills dst with frames that no peer needs. The caller owns them. Their Len and Options are as
// they were offered.
func (f *Fanout) Free(dst []umem.Frame) int {
	n := f.ledger.take(dst)
	f.shared.PassTo(f.worker, dst[:n])
	return n
}

// Acknowledged fills dst with the tokens of acknowledged messages, in the order of Offer. A token
// follows only when all messages before it are acknowledged.
func (f *Fanout) Acknowledged(dst []uint64) int { return f.ledger.acknowledged(dst) }

// Poll processes events from the peers, and sends what it can. It returns an error if a device is
// gone, or if a message can never be acknowledged.
func (f *Fanout) Poll(now time.Time) error {
	err := f.hopeless
	for i, p := range f.peers {
		p.looked = false
		if e := p.sender.Poll(now); e != nil {
			err = errors.Join(err, e)
		}
		f.collect(i, p)
		p.publish()
	}
	return err
}

// collect processes the results of a peer's messages.
func (f *Fanout) collect(number int, p *peer) {
	for {
		n := p.sender.Done(f.results[:])
		for i := range f.results[:n] {
			r := &f.results[i]
			f.ledger.done(uint32(r.Token), number, r.Acknowledged)
			if !r.Acknowledged {
				p.dropped[disconnected]++
			}
		}
		if n < len(f.results) {
			return
		}
	}
}

// Kick posts the messages that Offer has queued.
func (f *Fanout) Kick() error {
	var err error
	for _, p := range f.peers {
		if e := p.sender.Kick(); e != nil {
			err = errors.Join(err, e)
		}
	}
	return err
}

// FDs appends the descriptors of senders with Events.
func (f *Fanout) FDs(dst []unix.PollFd) []unix.PollFd {
	for _, p := range f.peers {
		dst = p.sender.FDs(dst)
	}
	return dst
}

// Idle reports whether all messages are acknowledged or dropped, all tokens are returned, and the
// caller has taken all frames.
func (f *Fanout) Idle() bool { return f.ledger.idle() }

// Close closes the senders and gives every frame back to the region. Run must have returned before.
// After an error the caller may call it again.
func (f *Fanout) Close() error {
	if f.closed {
		return nil
	}
	var errs []error
	for _, p := range f.peers {
		if p.sender != nil {
			errs = append(errs, p.sender.Close())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close fanout %s: %w", f.name, err) // keep the frames: devices may still read them
	}
	f.closed = true
	if f.shared != nil {
		f.shared.Close()
	}
	return nil
}
