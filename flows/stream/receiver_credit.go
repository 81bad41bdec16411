package stream

import (
	"math/bits"
)

// Credits. A receive that is posted is promised to one peer at most: available is how many are not promised. A peer's
// promise is limit - taken, the messages that it may still send.

// grant promises what is available: one to each peer that has none, and what is left in turn, up to a window each. One is
// kept for each peer that is not there yet.
func (r *Receiver) grant() {
	r.grantFirst()
	for spare := r.spare(); spare > 0; spare = r.spare() {
		if !r.grantRound(spare) {
			return
		}
	}
}

// may is how many more messages a peer may be promised.
func (r *Receiver) may(p *peer) int {
	n := r.config.Window - int(p.grantedLimit())
	if most := r.config.Unacknowledged; most > 0 {
		n = min(n, most-int(p.limit-p.session.acknowledged))
	}
	return n
}

// grantFirst promises one to each peer that has none, beginning behind the one that got its last. A peer that uses up
// its own at once so gets no second one before others that wait get their first: they may be those whose
// messages a flow needs to give frames back.
func (r *Receiver) grantFirst() {
	first := r.needy
	for _, part := range r.around(first) {
		for n := r.wants.next(part.from, part.to); n >= 0 && r.available > 0; n = r.wants.next(n+1, part.to) {
			if p := r.wanting(n); p != nil && p.grantedLimit() == 0 {
				r.give(p, 1)
				r.needy = n + 1
			}
		}
	}
}

// part is some of the slots.
type part struct{ from, to int }

// around are all slots, beginning with one, which may be the one behind the last.
func (r *Receiver) around(first int) [2]part {
	first %= len(r.slots)
	return [2]part{{first, len(r.slots)}, {0, first}}
}

// wanting is the peer of a slot, if it may be promised more. Else it is not looked at again until that changes.
func (r *Receiver) wanting(slot int) *peer {
	p := r.slots[slot].peer
	if p == nil || !p.state.takes() || r.may(p) <= 0 {
		r.wants.remove(slot)
		return nil
	}
	return p
}

func (r *Receiver) spare() int { return r.available - (r.config.Peers - len(r.peers)) }

// grantRound gives each peer a few, and reports whether one wanted some.
func (r *Receiver) grantRound(spare int) (given bool) {
	r.turn++
	for _, part := range r.around(r.turn) {
		for n := r.wants.next(part.from, part.to); n >= 0 && spare > 0; n = r.wants.next(n+1, part.to) {
			if p := r.wanting(n); p != nil {
				more := min(r.may(p), int(r.quantum()), spare)
				r.give(p, more)
				spare -= more
				given = true
			}
		}
	}
	return given
}

func (r *Receiver) give(p *peer, n int) {
	if p.granted != nil {
		r.assign(p, n)
	}
	p.limit += uint64(n)
	r.available -= n
	r.news.add(p.slot)
}

// takeBack ends a peer's promises. What it may write to comes back when it is detached.
func (r *Receiver) takeBack(p *peer) {
	r.news.add(p.slot)
	if p.granted != nil {
		return
	}
	r.available += int(p.grantedLimit())
	p.limit = p.session.taken
}

// slotSet is some of a receiver's slots. Going through it costs what is in it, and a look at a word for each 64 slots.
type slotSet []uint64

func newSlotSet(slots int) slotSet { return make(slotSet, (slots+63)/64) }

func (s slotSet) add(slot int) { s[slot/64] |= 1 << (slot % 64) }

func (s slotSet) remove(slot int) { s[slot/64] &^= 1 << (slot % 64) }

// next is the first in the set from a slot on, below end; -1: there is none.
func (s slotSet) next(slot, end int) int {
	for slot < end {
		if rest := s[slot/64] >> (slot % 64); rest != 0 {
			if slot += bits.TrailingZeros64(rest); slot < end {
				return slot
			}
			return -1
		}
		slot = slot/64*64 + 64
	}
	return -1
}
