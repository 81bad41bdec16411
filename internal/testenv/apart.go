package testenv

import (
	"errors"
	"sync"
	"testing"
)

// Separate makes a switch forward nothing between some of its ends. They and all others still reach each
// other. join, or else the end of the test, undoes it. It is for some ends of a switch at a time.
func Separate(t testing.TB, ends ...*End) (join func()) {
	t.Helper()
	set := func(on bool) (err error) {
		for _, e := range ends {
			err = errors.Join(err, e.port.handle(t).LinkSetIsolated(e.port.link(t), on))
		}
		return err
	}
	join = sync.OnceFunc(func() {
		Checkf(t, set(false), "join separated ends")
	})
	t.Cleanup(join)
	Mustf(t, set(true), "separate ends of a switch")
	return join
}
