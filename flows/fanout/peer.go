package fanout

import (
	"math/bits"

	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/counter"
)

// reason is why a message does not reach a peer.
type reason int

const (
	tooLong      reason = iota // for the peer's receives
	queueFull                  // the queue was full, and the message was the newest
	oldest                     // the queue was full, and the message had waited longest
	disconnected               // abandoned with the connection, or offered without one
	reasons
)

var reasonNames = [reasons]string{"too_long", "queue_full", "oldest", "disconnected"}

// Reasons returns the keys of PeerStats.Dropped.
func Reasons() []string { return reasonNames[:] }

// peer is a receiver.
type peer struct {
	sender  *stream.Sender
	policy  Policy
	looked  bool // sparesAll was called for this peer since the last Poll
	offered uint64
	dropped [reasons]uint64
	shown   [1 + reasons]counter.Counter // the published counters, stored once a round
}

// peersWithRoom applies the policies of peers without room, and returns the peers that then have
// room. wait is true if Offer must wait for a peer: a connected but slow one, or one whose
// acknowledgement the message needs. A disconnected peer is skipped if need other peers suffice;
// otherwise a disconnected minority would stall the rest.
func (f *Fanout) peersWithRoom(peers uint64, need int) (open uint64, wait bool) {
	spared := need > 0 && need < bits.OnesCount64(peers)
	for left := peers; left != 0; left &= left - 1 {
		n := bits.TrailingZeros64(left)
		if p := f.peers[n]; p.sender.Room() {
			open |= 1 << n
		} else if p.policy == Wait && (!spared || p.sender.Connected()) {
			return 0, true
		}
	}
	for left := peers &^ open; left != 0; left &= left - 1 {
		n := bits.TrailingZeros64(left)
		if f.applyPolicy(n, f.peers[n]) {
			open |= 1 << n
		}
	}
	return open, false
}

// applyPolicy applies the policy of a peer without room, and reports whether the peer then has
// room.
func (f *Fanout) applyPolicy(number int, p *peer) bool {
	switch p.policy {
	case DropOldest:
		if token, ok := p.sender.Oldest(); !ok || !f.ledger.spares(uint32(token)) {
			return false
		}
		token, _ := p.sender.Drop()
		p.dropped[oldest]++
		f.ledger.done(uint32(token), number, false)
	case Disconnect:
		if p.looked {
			return false
		}
		p.looked = true
		if !f.ledger.sparesAll(number) {
			return false
		}
		p.sender.Abandon()
		f.collect(number, p)
	}
	return p.sender.Room()
}

// count counts a message. chosen are the peers selected for it, fit those it is not too long for,
// and open those that get it.
func (f *Fanout) count(chosen, fit, open uint64) {
	for left := chosen; left != 0; left &= left - 1 {
		bit := left & -left
		p := f.peers[bits.TrailingZeros64(bit)]
		p.offered++
		switch {
		case fit&bit == 0:
			p.dropped[tooLong]++
		case open&bit == 0 && (p.policy == Disconnect || p.policy == Wait):
			p.dropped[disconnected]++
		case open&bit == 0:
			p.dropped[queueFull]++
		}
	}
}

func (p *peer) publish() {
	p.shown[0].Set(p.offered)
	for i, n := range p.dropped {
		p.shown[1+i].Set(n)
	}
}

// PeerStats are the counters of a peer since the fanout was opened. Offered = Sender.Acknowledged +
// Dropped + waiting and in flight.
type PeerStats struct {
	Offered uint64            // messages for it
	Dropped map[string]uint64 // messages that it did not get, by reason; has all Reasons
	Sender  stream.SenderStats
}

// Stats returns the counters of the peers, in the order of Config.Peers. Any goroutine may call it.
func (f *Fanout) Stats() []PeerStats {
	all := make([]PeerStats, len(f.peers))
	for i, p := range f.peers {
		all[i] = PeerStats{Offered: p.shown[0].Load(), Dropped: map[string]uint64{}, Sender: p.sender.Stats()}
		for r, name := range reasonNames {
			all[i].Dropped[name] = p.shown[1+r].Load()
		}
	}
	return all
}
