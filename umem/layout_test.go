package umem

import (
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// drawConfig draws a plausible configuration of up to 64 GiB.
func drawConfig(t *rapid.T) Config {
	return Config{
		Size:       rapid.Uint64Range(1, 64<<30).Draw(t, "size"),
		Pages:      rapid.SampledFrom([]PageSize{Huge2M, Huge1G, Ordinary}).Draw(t, "pages"),
		FrameSize:  rapid.SampledFrom([]uint32{2048, 4096}).Draw(t, "frame"),
		ExtentSize: 1 << rapid.IntRange(12, 30).Draw(t, "extent"),
		Extents:    rapid.Uint64Range(0, 64).Draw(t, "extents"),
	}
}

// TestLayoutProperties: every layout that newLayout allows is consistent.
func TestLayoutProperties(t *testing.T) {
	allowed := 0
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		l, err := newLayout(c)
		if err != nil {
			return
		}
		allowed++
		checkSize(t, c, l)
		checkBorders(t, l)
		checkCounting(t, l)
	})
	least := 20
	if testing.Short() {
		least = 1 // of the twenty that are then drawn
	}
	if allowed < least {
		t.Fatalf("only %d of the layouts drawn were allowed: the test says little", allowed)
	}
}

func checkSize(t *rapid.T, c Config, l layout) {
	if l.size < c.Size || l.size%c.Pages.Bytes() != 0 || l.size-c.Size >= c.Pages.Bytes() {
		t.Fatalf("%d bytes became %d on %v", c.Size, l.size, c.Pages)
	}
	if end := l.extentBase + l.extents*l.extentSize; end > l.size || l.size-end >= max(l.extentSize, uint64(l.frameSize)) {
		t.Fatalf("frames and extents end at %#x of %#x", end, l.size)
	}
	if l.frames*uint64(l.frameSize) != l.extentBase {
		t.Fatalf("%d frames of %d do not reach the extents at %#x", l.frames, l.frameSize, l.extentBase)
	}
}

// checkBorders checks that no frame or extent is in two buffers of 1 GiB, at every multiple of 1
// GiB, at the ends and at some places in between.
func checkBorders(t *rapid.T, l layout) {
	addrs := []uint64{0, l.extentBase - 1, rapid.Uint64Range(0, l.extentBase-1).Draw(t, "addr")}
	for at := uint64(maxBuffer); at < l.size; at += maxBuffer {
		addrs = append(addrs, at-1, at)
	}
	for i := range l.extents {
		addrs = append(addrs, l.extentBase+i*l.extentSize)
	}
	for _, addr := range addrs {
		start, size := addr&^uint64(l.frameSize-1), uint64(l.frameSize)
		if l.isExtent(addr) {
			start, size = l.extentOf(addr), l.extentSize
		}
		if start%size != 0 {
			t.Fatalf("the frame or extent at %#x is not aligned to its %d bytes", start, size)
		}
		if start/maxBuffer != (start+size-1)/maxBuffer {
			t.Fatalf("the frame or extent at %#x of %d bytes straddles two buffers", start, size)
		}
	}
}

// checkCounting checks that units and records correspond to frames one to one.
func checkCounting(t *rapid.T, l layout) {
	if want := int64(l.frames) + int64(l.extents)*int64(l.extentSize/uint64(l.frameSize)); l.total() != want {
		t.Fatalf("the layout counts %d frames, want %d", l.total(), want)
	}
	last := l.frames - 1
	if l.record(last*uint64(l.frameSize)) != last || l.units(last*uint64(l.frameSize)) != 1 {
		t.Fatalf("the last frame has record %d, counts %d", l.record(last*uint64(l.frameSize)), l.units(last*uint64(l.frameSize)))
	}
	for i := range l.extents {
		first := l.extentBase + i*l.extentSize
		inside := first + rapid.Uint64Range(0, l.extentSize-1).Draw(t, "inside")
		if l.extentOf(inside) != first || l.record(inside) != l.record(first) || l.units(inside) != l.framesPerExtent() {
			t.Fatalf("address %#x is not in extent %d at %#x", inside, i, first)
		}
	}
}

// TestLayoutAbove4GiB: a region of 5 GiB has the expected layout.
func TestLayoutAbove4GiB(t *testing.T) {
	l, err := newLayout(Config{Size: 5 << 30, FrameSize: 4096, ExtentSize: 1 << 20, Extents: 256})
	testenv.Must(t, err)
	want := layout{size: 5 << 30, whole: 5 << 30, inExtents: 256 << 20, frameSize: 4096, shift: 12, frames: (5<<30 - 256<<20) / 4096,
		extentBase: 5<<30 - 256<<20, extentSize: 1 << 20, extents: 256}
	if !reflect.DeepEqual(l, want) {
		t.Fatalf("layout is %+v, want %+v", l, want)
	}
	const addr = 4<<30 + 12345
	if got := l.record(addr); got != addr/4096 {
		t.Errorf("record of %#x is %d, want %d", uint64(addr), got, uint64(addr)/4096)
	}
	if got := l.record(5<<30 - 1); got != (5<<30-1<<20)/4096 {
		t.Errorf("record of the last byte is %d, want that of the last extent, %d", got, uint64(5<<30-1<<20)/4096)
	}
	if l.total() != 5<<30/4096 {
		t.Errorf("%d frames in all, want %d", l.total(), 5<<30/4096)
	}
}

// TestPoolAbove4GiB: the pool of a region of 5 GiB returns the right addresses.
func TestPoolAbove4GiB(t *testing.T) {
	l, err := newLayout(Config{Size: 5 << 30, FrameSize: 4096, ExtentSize: 1 << 30, Extents: 2})
	testenv.Must(t, err)
	var p pool
	p.fill(l)
	extents := make([]Frame, 3)
	if n := pop(&p.extents, extents, 1<<30); n != 2 || extents[0].Addr != 3<<30 || extents[1].Addr != 4<<30 {
		t.Fatalf("popped %d extents: %v", n, extents)
	}
	frames := make([]Frame, 3<<30/4096+1)
	n := pop(&p.frames, frames, 4096)
	if n != 3<<30/4096 {
		t.Fatalf("popped %d frames, want %d", n, 3<<30/4096)
	}
	for i, f := range frames[:n] {
		if f != (Frame{Addr: uint64(i) * 4096, Len: 4096}) {
			t.Fatalf("frame %d is %+v", i, f)
		}
	}
	p.push(&l, 4<<30+12345)
	p.push(&l, 3<<30-1)
	if p.extents[0] != 4<<30 || p.frames[0] != 3<<30-4096 {
		t.Fatalf("pushed back were %#x and %#x", p.extents, p.frames)
	}
}

func TestLayoutErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		config Config
		want   []string
	}{
		{"frame size", Config{Size: 1 << 30, FrameSize: 8192}, []string{"frame size 8192", "2048 or 4096"}},
		{"no size", Config{}, []string{"region size 0"}},
		{"endless", Config{Size: math.MaxUint64}, []string{"region size 18446744073709551615", "70368744177664"}},
		{"odd extents", Config{Size: 1 << 30, Extents: 1, ExtentSize: 3 << 20}, []string{"extent size 3145728", "power of two"}},
		{"small extents", Config{Size: 1 << 30, Extents: 1, ExtentSize: 2048}, []string{"extent size 2048", "one frame (4096)"}},
		{"large extents", Config{Size: 1 << 40, Extents: 1, ExtentSize: 2 << 30}, []string{"extent size 2147483648", "1 GiB"}},
		{"many extents", Config{Size: 1 << 40, Extents: 1<<20 + 1}, []string{"1048577 extents", "1048576"}},
		{"endless extents", Config{Size: 1 << 30, Extents: math.MaxUint64}, []string{"18446744073709551615 extents"}},
		{"only extents", Config{Size: 2 << 20, Extents: 2}, []string{"no room for frames in addition to 2 extents of 1048576 bytes", "raise its size"}},
		{"aligned away", Config{Size: 3<<20 - 1<<12, Pages: Ordinary, Extents: 1, ExtentSize: 2 << 20}, []string{"no room for frames in addition to its extents", "raise its size"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.config.setDefaults()
			_, err := newLayout(c.config)
			wantError(t, err, c.want...)
		})
	}
}
