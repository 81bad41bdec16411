package powercut

import (
	"errors"
	"fmt"
)

// What can be wrong with the packets found after a cut.
var (
	errLost  = errors.New("packets that were called durable are lost")
	errOrder = errors.New("packets are not in order")
)

// check reports whether the packets found after a cut, by their numbers, are what may be
// left of a flow that had called so many packets durable: those, in order, and behind
// them any later ones, in order too. Of a flow that overwrites its oldest packets the
// first ones may be missing.
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
