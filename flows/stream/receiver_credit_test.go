package stream

import "testing"

// TestCreditsForWhoWaits: receives arrive one at a time, and the first peer uses its credit at
// once. The receiver still gives each of the other peers a credit before it gives the first peer a
// second one.
func TestCreditsForWhoWaits(t *testing.T) {
	r := &Receiver{config: ReceiverConfig{Window: 8, Peers: 4}, slots: make([]slot, 4), news: newSlotSet(4), wants: newSlotSet(4)}
	for i := range r.slots {
		p := &peer{state: connected, session: &session{}, slot: i}
		r.peers, r.slots[i].peer = append(r.peers, p), p
		r.wants.add(i)
	}
	for range 4 {
		r.available++
		r.grant()
		if p := r.peers[0]; p.grantedLimit() > 0 {
			p.session.taken = p.limit
			r.wants.add(p.slot)
		}
	}
	for i, p := range r.peers {
		if p.limit != 1 {
			t.Errorf("peer %d was promised %d messages, not 1", i, p.limit)
		}
	}
	if r.available != 0 {
		t.Errorf("%d receives are promised to nobody", r.available)
	}
}
