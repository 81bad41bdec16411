package client

import (
	"testing"

	"github.com/unifiedd/unifiedd/umem"
)

// TestPlaces: messages of any length that may be in the device together do not overlap in their
// frames or extents.
func TestPlaces(t *testing.T) {
	for _, c := range []struct {
		message, depth int
		feed           Feeder
		frames, count  int
	}{
		{0, 1, new(nobody), 1, 25},
		{64, 1, new(nobody), 1, 25},
		{65, 40, new(nobody), 2, 64},
		{1024, 1, new(nobody), 7, 25},
		{1500, 8, new(nobody), 16, 32},
		{4096, 2, new(nobody), 26, 26},
		{4097, 3, new(nobody), 3, 3},
		{100, 5, nil, 5, 5},
	} {
		p := (&AppendConfig{Message: c.message, Depth: c.depth, Feed: c.feed}).bufferLayout()
		if p.count != c.count || p.frames() != c.frames {
			t.Errorf("%+v: %d messages in %d frames", c, p.count, p.frames())
			continue
		}
		frames := make([]umem.Frame, p.frames())
		for i := range frames {
			frames[i].Addr = uint64(3*i+1) << 20
		}
		taken := map[uint64]bool{}
		for n := range uint64(p.count) {
			f := p.at(frames, n)
			within := f.Addr & (1<<20 - 1)
			if f.Addr>>20%3 != 1 || taken[f.Addr] || c.message <= frameSize && within+uint64(c.message) > frameSize || within%max(p.bytes, 1) != 0 {
				t.Errorf("%+v: message %d lies at %#x", c, n, f.Addr)
			}
			taken[f.Addr] = true
			if p.at(frames, n+uint64(p.count)) != f {
				t.Errorf("%+v: message %d lies elsewhere", c, n+uint64(p.count))
			}
		}
	}
}

// nobody is a feeder without messages.
type nobody struct{}

func (*nobody) Next([]byte) (int, bool) { return 0, false }
func (*nobody) Acknowledged(Receipt)    {}
