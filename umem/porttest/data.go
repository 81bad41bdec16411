package porttest

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// checkData passes messages of all sizes in large batches and compares every byte of the suite's region.
func checkData(t testing.TB, open Opener) {
	g := newRig(t, open)
	for range 4 {
		g.exchange(2 * Slots)
		g.audit()
	}
	g.finish()
}

// checkFailure sends spoilt messages among good ones. On a device that stores, it also reads into
// spoilt frames.
func checkFailure(t testing.TB, open Opener) {
	g := newRig(t, open)
	if g.Spoil == nil {
		g.exchange(8)
		g.finish()
		return
	}
	for range 8 {
		g.failAmongGood()
		g.audit()
	}
	g.exchange(8)
	g.finish()
}

// failAmongGood sends a good message, a spoilt one and a good one.
func (g *rig) failAmongGood() {
	g.Helper()
	for _, ps := range [][]parcel{g.single(), g.spoil(g.single()), g.single()} {
		g.post(ps)
	}
	g.settle()
	if g.Stored {
		a, b := g.stored[0], g.stored[1]
		g.stored = nil
		for _, ps := range [][]parcel{g.request(a), g.spoil(g.request(b)), g.request(b)} {
			g.supplyAll(ps)
		}
		g.settle()
	}
}

// spoil makes a message of one frame fail.
func (g *rig) spoil(ps []parcel) []parcel {
	ps[0].spoilt = true
	g.Spoil(&ps[0].frame)
	g.never[ps[0].msg.seq] = true
	return ps
}

// checkErrno checks that a failed frame has an errno that the kernel knows.
func (g *rig) checkErrno(verb string, err error) {
	g.Helper()
	var errno unix.Errno
	if !errors.As(err, &errno) || errno == 0 || unix.ErrnoName(errno) == "" {
		g.Fatalf("%s gave a failed frame whose reason, %v, is no errno", verb, err)
	}
}
