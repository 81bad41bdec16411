package stream

import (
	"testing"

	"pgregory.net/rapid"
)

// TestOutbox: a send queue behaves like three lists.
func TestOutbox(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		depth := rapid.IntRange(1, 9).Draw(t, "depth")
		b := newOutbox(depth)
		var waiting, flight []uint64
		var results []Result
		token := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				if room := len(waiting)+len(flight)+len(results) < depth; b.room() != room {
					t.Fatalf("room: %v, want %v", b.room(), room)
				}
				if !b.room() {
					return
				}
				token++
				slot := b.push(outgoing{token: token, length: uint32(token)})
				if b.slots[slot].length != uint32(token) {
					t.Fatal("a slot is not what was pushed")
				}
				waiting = append(waiting, token)
			},
			"number": func(t *rapid.T) {
				if got := b.number(); got != (len(waiting) > 0) {
					t.Fatalf("number: %v of %d", got, len(waiting))
				} else if got {
					flight, waiting = append(flight, waiting[0]), waiting[1:]
				}
			},
			"retire": func(*rapid.T) {
				if len(flight) > 0 {
					b.retire(true, flight[0]+100)
					results, flight = append(results, Result{flight[0], true, flight[0] + 100}), flight[1:]
				}
			},
			"drop": func(t *rapid.T) {
				oldest, there := b.oldest()
				got, ok := b.drop()
				if ok != (len(waiting) > 0) || there != ok || got != oldest || ok && got != waiting[0] {
					t.Fatalf("dropped %d, %v of %v", got, ok, waiting)
				}
				waiting = waiting[min(1, len(waiting)):]
			},
			"abandon": func(t *rapid.T) {
				if n := b.abandon(); n != len(flight)+len(waiting) {
					t.Fatalf("%d are given up, want %d", n, len(flight)+len(waiting))
				}
				for _, one := range append(flight, waiting...) {
					results = append(results, Result{Token: one})
				}
				flight, waiting = nil, nil
			},
			"take": func(t *rapid.T) {
				dst := make([]Result, rapid.IntRange(0, 4).Draw(t, "most"))
				n := b.take(dst)
				if n != min(len(dst), len(results)) {
					t.Fatalf("%d results of %d", n, len(results))
				}
				for i, r := range dst[:n] {
					if r != results[i] {
						t.Fatalf("result %+v, want %+v", r, results[i])
					}
				}
				results = results[n:]
			},
			"": func(t *rapid.T) { checkOutbox(t, &b, waiting, flight) },
		})
	})
}

func checkOutbox(t *rapid.T, b *sendQueue, waiting, flight []uint64) {
	if b.waiting.Len() != len(waiting) || b.inFlight() != len(flight) {
		t.Fatalf("%d wait and %d are in flight, want %d and %d", b.waiting.Len(), b.inFlight(), len(waiting), len(flight))
	}
	for i, one := range flight {
		if got := b.slots[b.at(b.first+uint64(i))].token; got != one {
			t.Fatalf("number %d is message %d, want %d", b.first+uint64(i), got, one)
		}
	}
}
