package fanout

import (
	"math/bits"

	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/counter"
)

// reason is why a message does not reach a peer.
type reason int

const (
	tooLong      reason = iota // for the peer
	queueFull                  // and it was the newest
	oldest                     // the queue was full, and it had waited longest
	disconnected               // it was given up with the connection, or came before there was another one
	reasons
)

var reasonNames = [reasons]string{"too_long", "queue_full", "oldest", "disconnected"}

// Reasons are the words of PeerStats.Dropped.
func Reasons() []string { return reasonNames[:] }

// peer is a receiver.
type peer struct {
	sender  *stream.Sender
	policy  Policy
	looked  bool // all messages were looked at for whether they can do without it, since the last Poll
	offered uint64
	dropped [reasons]uint64
	shown   [1 + reasons]counter.Counter // of both, stored once a round
}

// peersWithRoom is which of some peers have room, after their policies had it made where there was none. wait says that one of those is to be waited for:
// one that is connected and slow, or one without which the message cannot be acknowledged. A peer that is away is left out where need others are enough, else
// a minority that is gone would stall the rest.
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

// applyPolicy does what the policy of a peer without room says, and reports whether there is some then.
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

// count counts a message that is taken: for whom it was chosen, whom it fits, and who gets it.
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

// PeerStats is what a peer was offered since the fanout was opened: Offered = Sender.Acknowledged + Dropped + what waits and is in flight.
type PeerStats struct {
	Offered uint64            // messages that were for it
	Dropped map[string]uint64 // those it did not get, by reason; it has all Reasons
	Sender  stream.SenderStats
}

// Stats are those of the peers, in the order of Config.Peers. It may be called from any goroutine.
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
