package powercut

import (
	"errors"
	"fmt"
)

// The faults that check finds in the packets after a cut.
var (
	errLost  = errors.New("packets that were called durable are lost")
	errOrder = errors.New("packets are not in order")
)

// check reports whether the packet numbers found after a cut are possible for a flow with that many
// durable packets. All durable packets must be there, in order. Any later packets may follow, in
// order. If the flow overwrites its oldest packets, the first ones may be missing.
func check(found []uint64, durable uint64, overwrites bool) error {
	var first uint64
	if overwrites && len(found) > 0 {
		first = found[0]
	}
	for i, n := range found {
		if i > 0 && n <= found[i-1] {
			return fmt.Errorf("%w: %d behind %d", errOrder, n, found[i-1])
		}
		if want := first + uint64(i); want < durable && n != want {
			return fmt.Errorf("%w: %d of %d, and more (%d is there)", errLost, want, durable, n)
		}
	}
	if next := first + uint64(len(found)); next < durable {
		return fmt.Errorf("%w: from %d on, of %d", errLost, next, durable)
	}
	return nil
}
