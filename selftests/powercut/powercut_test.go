package powercut

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
)

// TestPowerCuts makes one record and opens many states that cuts could have left.
func TestPowerCuts(t *testing.T) {
	testenv.Root(t)
	cuts, seed := setting.Number(t, "UNIFIEDD_CUTS", 5), setting.Number(t, "UNIFIEDD_SEED", uint64(time.Now().UnixNano()))
	t.Logf("UNIFIEDD_CUTS=%d UNIFIEDD_SEED=%d", cuts, seed)
	b := newBench(t, makeRecord(t, cuts > 20))
	for i := range cuts {
		t.Run(fmt.Sprint("cut", i), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, i))
			image := bytes.Clone(b.base)
			c := b.Cut(image, b.place(i, cuts, r), Fate(r.IntN(int(fates))), r)
			durable, begun := b.durable(c.At)
			t.Logf("%v; %v packets durable, %d flows", c, durable, begun)
			if err := b.try(t, image, c.At); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("a disk that lies", b.lies)
}

// place draws a place for a cut: every flow has its share of the cuts. A quarter is right
// behind a marker, and half where most is pending, right in front of a flush.
func (b *bench) place(i, cuts uint64, r *rand.Rand) int {
	from, to := b.span(uint32(i * uint64(len(b.flows)) / cuts))
	at := from + r.IntN(to+1-from)
	is := func(int) bool { return true }
	switch r.IntN(4) {
	case 0:
		is = func(n int) bool { _, ok := parseMarker(b.Entries[n-1].Data); return ok }
	case 1, 2:
		is = func(n int) bool {
			return n < len(b.Entries) && b.Entries[n].Flags&Flush != 0 && b.Entries[n-1].Flags&Flush == 0
		}
	}
	for n := at; n > from; n-- {
		if is(n) {
			return n
		}
	}
	return at
}

// span is where a flow is in the record: from the last marker of the one before up to its
// own last.
func (b *bench) span(flow uint32) (from, to int) {
	for _, c := range b.claims {
		if c.Flow < flow {
			from = c.Entry + 1
		}
		if c.Flow <= flow {
			to = c.Entry + 1
		}
	}
	return from, to
}

// lies proves that the check can fail: a disk loses what flushes should have made
// durable, on files and on a device. What it loses is what a flow wrote behind the middle
// one of its markers. A marker of a slow machine may be behind all that the flow has
// written; so if nobody notices, it loses what is behind earlier ones, in the end
// everything of the flow.
func (b *bench) lies(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	for _, flow := range []uint32{0, uint32(len(b.flows) - 1)} {
		t.Run(fmt.Sprint("flow", flow), func(t *testing.T) {
			places := b.markers(flow)
			last := places[len(places)-1]
			for n := len(places) / 2; ; n /= 2 {
				image := bytes.Clone(b.base)
				c := b.cut(image, last, places[n], Lost, r)
				err := b.try(t, image, last)
				if errors.Is(err, ErrLost) {
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

// markers are the places behind the markers of a flow, and in front of them where it
// begins.
func (b *bench) markers(flow uint32) []int {
	from, _ := b.span(flow)
	places := []int{from}
	for _, c := range b.claims {
		if c.Flow == flow {
			places = append(places, c.Entry+1)
		}
	}
	return places
}
