package porttest_test

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/umem/porttest"
)

// openWorker opens a region on ordinary pages with a worker on it.
func openWorker(t testing.TB) *umem.Holder {
	t.Helper()
	r, err := umem.Open(umem.Config{Size: 2 << 20, Pages: umem.Ordinary})
	testenv.Must(t, err)
	w, err := r.NewBook("test").NewHolder(umem.OwnerWorker, "worker")
	testenv.Must(t, err)
	t.Cleanup(func() {
		testenv.Check(t, r.Close())
	})
	return w
}

// openPair makes a link over the reference port. With loop the second end sends what it receives itself.
func openPair(c porttest.Config, link porttest.Link) porttest.Opener {
	return func(t testing.TB) *porttest.Link {
		l := link
		l.Worker = openWorker(t)
		l.Reopen = func(t testing.TB) {
			a, b, err := porttest.Pair(l.Worker, c)
			testenv.Must(t, err)
			l.Sender, l.Receiver = a, b
			t.Cleanup(func() { a.Close(); b.Close() })
		}
		l.Reopen(t)
		return &l
	}
}

// spoilLength makes a view leave its frame.
func spoilLength(f *umem.Frame) { f.Len = 1 << 20 }

func TestPairSingleFrames(t *testing.T) {
	porttest.Run(t, openPair(porttest.Config{Frames: 1, Landing: 256},
		porttest.Link{Min: 8, Max: 3840, Spoil: spoilLength}))
}

func TestPairChains(t *testing.T) {
	porttest.Run(t, openPair(porttest.Config{Landing: 256},
		porttest.Link{Header: []byte("header"), Min: 60, Max: 9000, Offset: 512, Landing: 3840, Spoil: spoilLength}))
}

func TestPairFewFrames(t *testing.T) {
	porttest.Run(t, openPair(porttest.Config{Depth: 5}, porttest.Link{Min: 64, Max: 4 * 512, Unit: 64, Room: 512}))
}
