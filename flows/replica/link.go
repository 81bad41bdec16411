package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/msg"
)

// Link is a queue pair over which records go in one direction, in one epoch. It belongs to the
// worker's thread.
type Link struct {
	member    uint32 // on the other side
	epoch     uint64
	feeds     bool // this side sends records
	parted    bool // its queue pair is being closed
	path      *lane
	number    int // in the port of its path
	slot      int // in Links.slots
	queue     rdma.QueuePair
	over      bool  // nothing is sent or taken any more
	connected bool  // the handshake is complete: this side may send, and believes the other one
	spread    bool  // the other side has DriverConfig.Spread; once it is connected
	cause     error // other goroutines may read it once ended is closed
	ended     chan struct{}
	told      int  // messages without records posted
	resting   bool // frames rest until it is detached: see held.ending

	// This side sends records.
	next     uint64            // position of the next record to post
	needs    uint64            // oldest position in Links.held that it needs
	sent     uint64            // records posted
	limit    uint64            // records that may be posted
	requests uint64            // posted
	done     uint64            // requests that the device is done with
	upTo     [sendDepth]uint64 // by request: the position of the last record posted until then
	copies   *catchUp          // nil: records come from Links.held
	count    uint64            // commit messages
	saidAt   time.Time         // when the last one was posted
	said     uint64            // the committed position in it
	have     protocol.Have     // what the follower said last
	news     bool              // it has said something since the last call of Progress
	heardAt  time.Time         // when it last said something

	// Records come over this link.
	last    uint64        // position of the last record
	of      uint64        // its epoch
	taken   uint64        // records
	echo    uint64        // count of the last commit message
	toSay   protocol.Have // progress
	hasSaid protocol.Have
}

// Attach takes over a queue pair in INIT, of the device of a path. With feeds, records from position next on go to member;
// otherwise they come from it, and of is the epoch of the record before. limit is how many messages
// the sender may send at first. fence is what Fence returned when the link was decided on: there is no
// link if EndAll was called since. The previous link over which records came ends. The other side counts as heard
// then, unless the link is made again: a member that tries one path after the other must notice that its leader is
// silent.
func (l *Links) Attach(q rdma.QueuePair, path int, member uint32, epoch uint64, feeds, again bool, next, of, limit, fence uint64) (*Link, error) {
	if l.closed {
		return nil, errClosed
	}
	if fence != l.fences {
		return nil, errFenced
	}
	if !feeds && l.incoming != nil {
		if err := l.End(l.incoming, errReplaced); err != nil {
			return nil, err
		}
	}
	p := l.paths[path]
	if p.links == l.config.Links {
		return nil, fmt.Errorf("%w: there are %d links, as many as there may be", protocol.Busy, p.links)
	}
	n, err := p.port.Attach(msg.Peer{QueuePair: q, Message: uint64(max(l.config.Message, protocol.HeaderLen))})
	if err != nil {
		return nil, err
	}
	now := time.Now() // the other side has the whole of Suspect to say something
	k := &Link{member: member, epoch: epoch, feeds: feeds, heardAt: now, path: p, number: n, slot: l.slot(p, n), queue: q, ended: make(chan struct{}), next: next, limit: limit, last: next - 1, of: of}
	l.slots[k.slot] = k
	p.links++
	if feeds {
		k.have = protocol.Have{Epoch: epoch, Limit: limit}
		l.feed(k)
	} else {
		k.toSay = protocol.Have{Epoch: epoch, Received: next - 1}
		l.incoming = k
		if !again {
			l.heard.Set(uint64(now.UnixNano()))
		}
		l.shown.Store(k)
	}
	l.Supply()
	return k, nil
}

// End ends a link: its queue pair goes to Error, and what has arrived and was not returned by Recv is
// dropped. Detach must follow.
func (l *Links) End(k *Link, cause error) error {
	if l.closed || l.slots[k.slot] != k || k.parted {
		return nil
	}
	k.fail(cause)
	if l.incoming == k {
		l.incoming = nil
		l.shown.Store(nil)
	}
	return k.queue.Modify(rdma.Attributes{State: rdma.Error}, rdma.MaskState)
}

var errFenced = errors.New("all links were ended while this one was made")

var errReplaced = errors.New("the member has another link")

// HeardFrom returns when each follower that gets records last said something.
func (l *Links) HeardFrom() map[uint32]time.Time {
	all := map[uint32]time.Time{}
	for _, k := range l.slots {
		if k != nil && k.feeds && !k.over && k.heardAt.After(all[k.member]) {
			all[k.member] = k.heardAt
		}
	}
	return all
}

// linked is what a member knows of another one by the link to it.
type linked struct {
	path int      // over which the other one gets records, from 1 on; 0: it gets none
	mode PathMode // of the other one
}

// linked returns what is known of the members to which there are links, if there are several paths.
func (l *Links) linked() map[uint32]linked {
	all := map[uint32]linked{}
	for _, k := range l.slots {
		if len(l.paths) == 1 || k == nil || k.over || !k.feeds && k != l.incoming {
			continue
		}
		one := all[k.member]
		if k.feeds {
			one.path = 1 + k.path.number
		}
		if k.connected {
			one.mode = modeOf(k.spread)
		}
		all[k.member] = one
	}
	return all
}

// EndOf ends the links over which records go to a member.
func (l *Links) EndOf(member uint32) error {
	for _, k := range l.slots {
		if k != nil && k.feeds && k.member == member {
			if err := l.End(k, errReplaced); err != nil {
				return err
			}
		}
	}
	return nil
}

// Fence returns a number that EndAll changes.
func (l *Links) Fence() uint64 { return l.fences }

// EndAll ends all links, also those that are being made.
func (l *Links) EndAll(cause error) error {
	l.fences++
	var errs []error
	for _, k := range l.slots {
		if k != nil {
			errs = append(errs, l.End(k, cause))
		}
	}
	return errors.Join(errs...)
}

// part returns a function that closes the queue pair of a link that has ended; nil: there is none.
func (l *Links) part(k *Link) (closeQueue func() error, err error) {
	if l.closed || l.slots[k.slot] != k {
		return nil, nil
	}
	k.parted = true
	return k.path.port.Part(k.number)
}

// Detach takes away a link that has ended, and closes its queue pair unless that was done.
func (l *Links) Detach(k *Link) error {
	if l.closed || l.slots[k.slot] != k {
		return nil
	}
	if err := k.path.port.Detach(k.number); err != nil {
		return err
	}
	l.slots[k.slot] = nil
	k.path.links--
	l.held.detached(l, k)
	if k.copies != nil {
		k.copies.close(l)
	}
	l.held.release(l)
	return nil
}

// fail makes the link's end known. The first cause counts.
func (k *Link) fail(cause error) {
	if k.over {
		return
	}
	if cause == nil {
		cause = errors.New("its queue pair has failed")
	}
	k.over, k.cause = true, cause
	close(k.ended)
}

// Ended returns a channel that is closed when the link has ended. Any goroutine may call it.
func (k *Link) Ended() <-chan struct{} { return k.ended }

// Cause returns why the link has ended, once Ended is closed.
func (k *Link) Cause() error { return k.cause }

// causeOr returns why the link has ended, or another reason if it has not.
func (k *Link) causeOr(other error) error {
	select {
	case <-k.ended:
		return k.cause
	default:
		return other
	}
}

// record checks a record that has arrived.
func (k *Link) record(l *Links, message []byte) protocol.Reason {
	if uint64(len(message)) > uint64(l.config.Message) {
		return protocol.TooLong
	}
	d, why := protocol.ParseRecord(message)
	switch {
	case why != protocol.None:
		return why
	case d.Position != k.last+1 || uint64(d.Epoch) < k.of || uint64(d.Epoch) > k.epoch:
		return protocol.BadSequence
	case protocol.Checksum(message[protocol.HeaderLen:]) != d.Checksum:
		return protocol.BadPayload
	}
	k.last, k.of = d.Position, uint64(d.Epoch)
	k.taken++
	k.toSay.Received = k.last
	return protocol.None
}

// commit handles the leader's commit message. The leader may send before this side has looked at its answer and knows who
// it is. Such a message says nothing yet. But it is confirmed later, as each one is: the leader sends no more while some
// of them are not confirmed.
func (k *Link) commit(l *Links, message []byte) protocol.Reason {
	c, why := protocol.ParseCommit(message)
	switch {
	case why != protocol.None:
		return why
	case c.Epoch != k.epoch:
		return protocol.BadSession
	case c.Count <= k.echo:
		return protocol.BadSequence
	}
	k.echo = c.Count
	k.toSay.Count = c.Count
	if !k.connected {
		return protocol.None
	}
	l.heard.Set(uint64(l.now.UnixNano()))
	if to := min(c.Committed, k.last); to > l.committed.Load() {
		l.committed.Set(to)
	}
	return protocol.None
}

// progressed handles what a follower says.
func (k *Link) progressed(l *Links, message []byte) protocol.Reason {
	h, why := protocol.ParseHave(message)
	switch {
	case why != protocol.None:
		return why
	case h.Epoch != k.epoch:
		return protocol.BadSession
	case h.Status != protocol.None:
		k.fail(fmt.Errorf("member %d ends the link: %w", k.member, h.Status))
		return protocol.None
	case h.Received >= k.next || h.Received < k.have.Received || h.Durable < k.have.Durable || h.Written < k.have.Written || h.Count > k.count:
		return protocol.BadSequence
	case h.Limit < k.limit || h.Limit > k.sent+maxAhead:
		return protocol.BeyondCredit
	}
	k.have, k.limit, k.news, k.heardAt = h, h.Limit, true, l.now
	return protocol.None
}

// maxAhead is how many records a follower may permit at most.
const maxAhead = 1 << 20
