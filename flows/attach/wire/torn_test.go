//go:build !race

package wire

import (
	"encoding/binary"
	"sync"
	"testing"
	"time"
)

// The race detector would report what this test is about: a copy that a writer overtakes.

// TestTornReads: a reader beside a writer at full speed never gets a mixture of two messages, and sees that messages
// were passed. Without the second look at the sequence it would get one.
func TestTornReads(t *testing.T) {
	const slots, slot = 16, 1024
	memory := make([]uint64, ChannelLen(slots, slot)/8)
	b := bytesOf(memory)
	w, r := NewChannel(b, slots, slot, 0), ViewChannel(b, slots, slot)
	span := 300 * time.Millisecond
	if testing.Short() {
		span = 50 * time.Millisecond
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		var m [slot - SlotHeader]byte
		for {
			select {
			case <-stop:
				return
			default:
			}
			n := w.Last() + 1
			for i := 0; i < len(m); i += 8 {
				binary.NativeEndian.PutUint64(m[i:], n)
			}
			w.Put(m[:])
		}
	})
	read, passed, next := 0, 0, uint64(1)
	var m [slot]byte
	for end := time.Now().Add(span); time.Now().Before(end); {
		switch n, f := r.Get(next, m[:]); f {
		case Read:
			read++
			for i := 0; i < n; i += 8 {
				if got := binary.NativeEndian.Uint64(m[i:]); got != next {
					close(stop)
					t.Fatalf("message %d has %d at byte %d", next, got, i)
				}
			}
			next++
		case Passed:
			passed++
			next = r.Last()
		case NotYet:
		default:
			t.Fatalf("message %d: %v", next, f)
		}
	}
	close(stop)
	wg.Wait()
	if read == 0 || passed == 0 {
		t.Errorf("%d messages were read, %d passed", read, passed)
	}
	t.Logf("%d messages were read, %d passed", read, passed)
}
