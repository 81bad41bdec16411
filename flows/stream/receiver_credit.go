package stream

import (
	"math/bits"
)

// Credits. The receiver promises a posted receive to at most one peer; available counts the others.
// A peer may still send limit - taken messages.

// grant gives credits for available receives. Each peer without a credit first gets one. Then the
// peers get the rest by turns, up to a window each. One receive is reserved for each peer that is
// not connected yet.
func (r *Receiver) grant() {
	r.grantFirst()
	for spare := r.spare(); spare > 0; spare = r.spare() {
		if !r.grantRound(spare) {
			return
		}
	}
}

// may returns how many more credits a peer may get.
func (r *Receiver) may(p *peer) int {
	n := r.config.Window - int(p.grantedLimit())
	if most := r.config.Unacknowledged; most > 0 {
		n = min(n, most-int(p.limit-p.session.acknowledged))
	}
	return n
}

// grantFirst gives one credit to each peer that has none. It begins after the peer that got the
// last one. A peer that uses its credit at once therefore gets a second one only after the others
// have got their first. The flow may need the others' messages before it can give frames back.
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

// part is a range of slots.
type part struct{ from, to int }

// around returns all slots, beginning with first, which may be one past the end.
func (r *Receiver) around(first int) [2]part {
	first %= len(r.slots)
	return [2]part{{first, len(r.slots)}, {0, first}}
}

// wanting returns the peer of a slot if it may get more credits. Otherwise it removes the slot from
// wants until that changes.
func (r *Receiver) wanting(slot int) *peer {
	p := r.slots[slot].peer
	if p == nil || !p.state.takes() || r.may(p) <= 0 {
		r.wants.remove(slot)
		return nil
	}
	return p
}

func (r *Receiver) spare() int { return r.available - (r.config.Peers - len(r.peers)) }

// grantRound gives each peer a few credits. It reports whether a peer took some.
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
	from := max(p.limit, p.session.taken)
	p.limit = from + uint64(n)
	r.available -= n - p.session.early.between(from, p.limit)
	r.news.add(p.slot)
}

// takeBack revokes a peer's credits. Frames that the peer may write return when it is detached.
func (r *Receiver) takeBack(p *peer) {
	r.news.add(p.slot)
	if p.granted != nil {
		return
	}
	r.available += p.promised()
	p.limit = p.session.taken
}

// slotSet is a set of slots. Iterating costs a step for each member and one for each 64 slots.
type slotSet []uint64

func newSlotSet(slots int) slotSet { return make(slotSet, (slots+63)/64) }

func (s slotSet) add(slot int) { s[slot/64] |= 1 << (slot % 64) }

func (s slotSet) remove(slot int) { s[slot/64] &^= 1 << (slot % 64) }

// next returns the first member from slot on and below end; -1: none.
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
