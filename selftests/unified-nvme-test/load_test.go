package main

import (
	"bytes"
	"errors"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// newTestLoader opens a session on a file of 4 MiB and a loader on it.
func newTestLoader(t *testing.T, args ...string) *loader {
	t.Helper()
	testenv.Root(t)
	path := testenv.DiskFile(t, 4<<20)
	o, err := parse(append(args, "-pages", "ordinary", "-force", path), os.Stderr)
	testenv.Must(t, err)
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	n := need{block: uint64(o.block), depth: o.depth}
	if o.gather {
		n.piece = frameSize
	}
	s, err := open(o, n)
	testenv.Must(t, err)
	t.Cleanup(func() {
		testenv.Check(t, s.cleanup.Close())
	})
	l, err := newLoader(s, o)
	testenv.Must(t, err)
	return l
}

// TestShrunkFile: the loader reports the read that fails after the target became shorter.
func TestShrunkFile(t *testing.T) {
	l := newTestLoader(t, "-rw", "read", "-runtime", "0")
	testenv.Must(t, os.Truncate(l.target.Path(), 8192))
	_, err := l.measure(t.Context())
	if !errors.Is(err, unix.ENODATA) || !strings.Contains(err.Error(), "read 4096 bytes at 8192") {
		t.Error(err)
	}
}

// TestWatchTells: the watcher warns while nothing completes, and prints nothing while operations
// complete.
func TestWatchTells(t *testing.T) {
	l := newTestLoader(t, "-rw", "read", "-runtime", "0")
	var told bytes.Buffer
	stop := l.watch(&told, 20*time.Millisecond)
	time.Sleep(200 * time.Millisecond)
	stop()
	if n := strings.Count(told.String(), l.target.Path()+" has completed nothing for 20ms"); n == 0 {
		t.Errorf("it told %q", told.String())
	}
	told.Reset()
	stop = l.watch(&told, time.Minute)
	_, err := l.measure(t.Context())
	stop()
	if err != nil || told.Len() != 0 {
		t.Errorf("%v, it told %q", err, told.String())
	}
}

func TestPlanCoversTheRange(t *testing.T) {
	o := options{rw: "read", block: 4096}
	p := newPlan(o, 10*4096+100)
	for i := range uint64(10) {
		if block, read := p.place(); block != i || !read {
			t.Errorf("operation %d: block %d, read %v", i, block, read)
		}
	}
	if p.left != 0 {
		t.Errorf("%d operations are left", p.left)
	}
}

func TestPlanDrawsEvenly(t *testing.T) {
	const blocks, draws = 16, 160000
	o := options{rw: "randrw", block: 512, mix: 70, seed: 7, runtime: 1}
	p := newPlan(o, blocks*512)
	var hits [blocks]int
	reads := 0
	for range draws {
		block, read := p.place()
		hits[block]++
		if read {
			reads++
		}
	}
	for i, n := range hits {
		if math.Abs(float64(n)-draws/blocks) > 500 { // five standard deviations
			t.Errorf("block %d was drawn %d times", i, n)
		}
	}
	if share := float64(reads) / draws; math.Abs(share-0.7) > 0.01 {
		t.Errorf("%.3f are reads", share)
	}
	same := newPlan(o, blocks*512)
	again := newPlan(o, blocks*512)
	for range 100 {
		a, ra := same.place()
		if b, rb := again.place(); a != b || ra != rb {
			t.Fatal("the same seed draws differently")
		}
	}
}

// TestCheckerSeesEveryBit: the checker detects a flip of any bit of a block.
func TestCheckerSeesEveryBit(t *testing.T) {
	l := newTestLoader(t, "-rw", "write", "-verify", "-bs", "512")
	c, chain := l.check, l.idle[:1]
	number := c.begin(l.region, chain, 3, false)
	testenv.Must(t, c.end(l.region, chain, number, false))
	testenv.Must(t, c.compare(l.region, chain, number))
	b := l.region.Bytes(chain[0])
	for bit := range 8 * len(b) {
		b[bit/8] ^= 1 << (bit % 8)
		if c.compare(l.region, chain, number) == nil {
			t.Fatalf("bit %d of byte %d may be wrong", bit%8, bit/8)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
}

// TestCheckerSeesLostAndMisplacedWrites: the checker detects an older block, a block from another
// place and one without a header.
func TestCheckerSeesLostAndMisplacedWrites(t *testing.T) {
	l := newTestLoader(t, "-rw", "write", "-verify")
	c, chain := l.check, l.idle[:1]
	write := func(number uint64) {
		testenv.Must(t, c.end(l.region, chain, c.begin(l.region, chain, number, false), false))
	}
	write(5)
	old := append([]byte(nil), l.region.Bytes(chain[0])...)
	write(5)
	copy(l.region.Bytes(chain[0]), old)
	if err := c.compare(l.region, chain, 5); err == nil || !strings.Contains(err.Error(), "is lost") {
		t.Error(err)
	}
	write(6)
	if err := c.compare(l.region, chain, 7); err == nil || !strings.Contains(err.Error(), "belongs at 24576") {
		t.Error(err)
	}
	clear(l.region.Bytes(chain[0]))
	if err := c.compare(l.region, chain, 6); err == nil || !strings.Contains(err.Error(), "no block written with -verify") {
		t.Error(err)
	}
}

// TestCheckerKeepsWritesApart: the checker never has two writes of one block in flight.
func TestCheckerKeepsWritesApart(t *testing.T) {
	l := newTestLoader(t, "-rw", "randwrite", "-verify", "-size", "16k", "-iodepth", "4")
	seen := make(map[uint64]bool)
	for i := range 4 {
		seen[l.check.begin(l.region, l.idle[i:i+1], 2, false)] = true
	}
	if len(seen) != 4 {
		t.Errorf("four writes of four blocks go to %v", seen)
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]uint64{"0": 0, "512": 512, "4k": 4096, "4K": 4096, "1m": 1 << 20, "1MiB": 1 << 20, "2g": 2 << 30, "1t": 1 << 40, "8kb": 8192} {
		var s size
		if err := s.Set(text); err != nil || uint64(s) != want {
			t.Errorf("%q: %d, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "k", "-1", "1.5k", "1e3", "8x", "9999999999g", "b"} {
		if err := new(size).Set(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
	for v, want := range map[uint64]string{0: "0", 1: "1", 4096: "4k", 1 << 30: "1g", 1<<30 + 1: "1073741825"} {
		if got := bytesText(v); got != want {
			t.Errorf("%d: %q", v, got)
		}
	}
}
