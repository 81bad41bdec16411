package msg

import "testing"

// TestShift: the port places messages in neighbouring extents at different offsets, and the longest
// message fits after each.
func TestShift(t *testing.T) {
	const room, message = 256 << 10, 28 + 64 + 4096
	r := receiver{landing: 28, spread: message}
	places := map[uint64]bool{}
	for n := range uint64(200) {
		at := r.shift(3*room/2+n*room, room) // extents need not begin at a multiple of their size
		if at%page != 0 || at+message > room {
			t.Errorf("extent %d: %d", n, at)
		}
		places[at] = true
	}
	if want := (room-message)/page + 1; len(places) != want {
		t.Errorf("%d places, not %d", len(places), want)
	}
	for _, one := range []struct{ spread, room uint64 }{{0, room}, {message, message}, {message, 4096}, {4096, 4096}} {
		r.spread = one.spread
		if at := r.shift(7*one.room, one.room); at != 0 {
			t.Errorf("%+v: %d", one, at)
		}
	}
}
