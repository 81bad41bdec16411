package powercut

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
)

// TestPowerCuts: every state that a cut could have left has all durable data and recovers.
func TestPowerCuts(t *testing.T) {
	testenv.Long(t, "it boots a guest")
	testenv.Root(t)
	cuts, seed := setting.Number(t, "UNIFIEDD_CUTS", 3), setting.Seed(t)
	t.Logf("UNIFIEDD_CUTS=%d", cuts)
	r := makeRecord(t, cuts > 20)
	t.Run("captures", func(t *testing.T) { captureBench(t, r).cuts(t, cuts, seed) })
	t.Run("logs", func(t *testing.T) { logBench(t, r).cuts(t, cuts, seed) })
	t.Run("targets", func(t *testing.T) { (&bench{record: r, flows: r.targets}).cuts(t, cuts, seed) })
}

// cuts opens cuts random states, and some of a disk that lies, which the check must find.
func (b *bench) cuts(t *testing.T, cuts, seed uint64) {
	for i := range cuts {
		t.Run(fmt.Sprint("cut", i), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, i))
			image := bytes.Clone(b.base)
			c := b.Cut(image, b.place(i, cuts, r), Fate(r.IntN(int(fates))), r)
			goOn := i == 0 || r.IntN(4) == 0
			t.Logf("%v; %v durable; goes on: %v", c, durableOf(b.claimed(c.At)), goOn)
			testenv.Check(t, b.try(t, image, c.At, goOn))
		})
	}
	t.Run("a disk that lies", b.lies)
}

// place draws a place for a cut. Every flow gets its share of the cuts. A quarter of them is right
// after a marker. Half of them is right before a flush, where most writes are pending.
func (b *bench) place(i, cuts uint64, r *rand.Rand) int {
	from, to := b.span(b.flows[i*uint64(len(b.flows))/cuts])
	at := from + r.IntN(to+1-from)
	is := func(int) bool { return true }
	switch r.IntN(4) {
	case 0:
		is = func(n int) bool { _, ok := parseMarker(b.Entries[n-1].Data); return ok }
	case 1, 2:
		is = func(n int) bool {
			return n < len(b.Entries) && b.Entries[n].Flags&flush != 0 && b.Entries[n-1].Flags&flush == 0
		}
	}
	for n := at; n > from; n-- {
		if is(n) {
			return n
		}
	}
	return at
}

// span returns the entries of a flow in the record: from its first marker to the first marker of
// the next flow.
func (b *bench) span(f flow) (from, to int) {
	to = len(b.Entries)
	for i := len(b.claims) - 1; i >= 0; i-- {
		switch c := b.claims[i]; {
		case int(c.Flow) == f.number:
			from = c.Entry + 1
		case int(c.Flow) > f.number:
			to = c.Entry
		}
	}
	return from, to
}

// lies proves that the check can fail. The simulated disk ignores flushes and loses what a flow
// wrote after its middle marker, for a flow in files and one on a device. On a slow machine that
// marker may come after everything that the flow wrote. So if the check finds nothing, the disk
// loses what follows an earlier marker, and in the end everything of the flow.
func (b *bench) lies(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	for _, f := range slices.Compact([]flow{b.flows[0], b.flows[len(b.flows)-1]}) {
		t.Run(f.name(), func(t *testing.T) {
			places := b.markers(f)
			last := places[len(places)-1]
			for n := len(places) / 2; ; n /= 2 {
				image := bytes.Clone(b.base)
				c := b.cut(image, last, places[n], Lost, r)
				err := b.try(t, image, last, false)
				if errors.Is(err, errLost) {
					return
				}
				t.Logf("%v, behind marker %d of %d: nobody notices: %v", c, n, len(places)-1, err)
				if n == 0 {
					t.Fatal("nobody notices that everything is lost")
				}
			}
		})
	}
}

// markers returns the places after each marker of a flow. The first place is where the flow begins.
func (b *bench) markers(f flow) (places []int) {
	for _, c := range of(f, b.claims) {
		places = append(places, c.Entry+1)
	}
	return places
}
