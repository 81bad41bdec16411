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

// MaxPeers is how many peers a Fanout has at most.
const MaxPeers = 64

// Peer is a receiver, as it is configured.
type Peer struct {
	Sender *stream.Sender // the fanout's to close, from Open on
	Policy Policy
}

// Config says what fanout to open.
type Config struct {
	Name        string       // for people
	Worker      *umem.Holder // who passes frames in and is passed those that come out: that of the senders
	Peers       []Peer
	Choose      Choose
	Acknowledge Acknowledge
	Frames      int // of a message, at most; default 3
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
	turn     int // of Round: whose it is
	ledger   refTable
	results  [64]stream.Result
	hopeless error // a message that cannot be acknowledged
	closed   bool
}

// Open makes a fanout. It may be called on any thread while no other uses the worker's book. The senders are closed also when it returns an error.
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
	case len(c.Peers) < 1 || len(c.Peers) > MaxPeers:
		return fmt.Errorf("there are %d peers: it takes 1 to %d", len(c.Peers), MaxPeers)
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

// Run connects all peers, and keeps them connected until the context ends: stream.Sender.Run.
func (f *Fanout) Run(ctx context.Context, do stream.Doer) error {
	errs := make([]error, len(f.peers))
	var all sync.WaitGroup
	for i, p := range f.peers {
		all.Go(func() { errs[i] = p.sender.Run(ctx, do) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Fits reports whether a message of so many frames and bytes can go to every peer.
func (f *Fanout) Fits(frames int, length uint32) bool {
	for _, p := range f.peers {
		if !p.sender.Fits(frames, length) {
			return false
		}
	}
	return frames <= f.ledger.each
}

// Offer takes a message: its frames are the fanout's then, until Free. It is false where they stay the caller's, who offers the message again later: a
// peer it is for has no room and the policy is to wait, or its acknowledgement does not allow to leave that peer out, or too much is
// under way. The token comes back with Acknowledged; the stamp, in nanoseconds since 1970, goes to the receivers.
//
// What is too long for a peer is dropped there. Where messages are acknowledged the caller sees to it that they fit (Fits); one that then cannot be is an
// error of Poll.
func (f *Fanout) Offer(message []umem.Frame, token, stamp uint64) bool {
	return f.Relay(message, token, stamp, protocol.Origin{})
}

// Relay is Offer of a message that came in another session, which receivers that take origins are told.
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

// send hands a message to peers that have room for it.
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

// fitting are those of the chosen peers that can be sent the message at all.
func (f *Fanout) fitting(chosen uint64, frames int, length uint32) (fit uint64) {
	for left := chosen; left != 0; left &= left - 1 {
		n := bits.TrailingZeros64(left)
		if frames <= f.ledger.each && f.peers[n].sender.Fits(frames, length) {
			fit |= 1 << n
		}
	}
	return fit
}

// connected is how many of some peers are.
func (f *Fanout) connected(peers uint64) (n int) {
	for ; peers != 0; peers &= peers - 1 {
		if f.peers[bits.TrailingZeros64(peers)].sender.Connected() {
			n++
		}
	}
	return n
}

// Free fills dst with frames that no peer needs any more. They are the caller's. Their Len and Options are as they were offered.
func (f *Fanout) Free(dst []umem.Frame) int {
	n := f.ledger.take(dst)
	f.shared.PassTo(f.worker, dst[:n])
	return n
}

// Acknowledged fills dst with the tokens of messages that are acknowledged, as all before them are, in the order of Offer.
func (f *Fanout) Acknowledged(dst []uint64) int { return f.ledger.acknowledged(dst) }

// Poll takes what came of the peers and sends what can be sent. The error says that a device is gone, or that a message can never be acknowledged.
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

// collect notes what became of a peer's messages.
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

// Kick posts what Offer has queued.
func (f *Fanout) Kick() error {
	var err error
	for _, p := range f.peers {
		if e := p.sender.Kick(); e != nil {
			err = errors.Join(err, e)
		}
	}
	return err
}

// FDs appends what to poll for when there is nothing to do, of senders with Events.
func (f *Fanout) FDs(dst []unix.PollFd) []unix.PollFd {
	for _, p := range f.peers {
		if fd := p.sender.FD(); fd >= 0 {
			dst = append(dst, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
	}
	return dst
}

// Idle reports whether everything is acknowledged or dropped, and told of, and all frames are taken.
func (f *Fanout) Idle() bool { return f.ledger.idle() }

// Close closes the senders and gives every frame to the pool. Run has returned before. After an error it may be called again.
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
		return fmt.Errorf("close fanout %s: %w", f.name, err) // devices may still read the frames
	}
	f.closed = true
	if f.shared != nil {
		f.shared.Close()
	}
	return nil
}
