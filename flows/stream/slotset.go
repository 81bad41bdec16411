package stream

import "math/bits"

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
