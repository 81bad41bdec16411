package wire

import (
	"testing"
	"time"
)

func TestPSN(t *testing.T) {
	const top = 1<<24 - 1
	for _, c := range []struct {
		from PSN
		n    int
		to   PSN
	}{{0, 1, 1}, {top, 1, 0}, {0, -1, top}, {top - 1, 5, 3}, {3, -5, top - 1}, {7, 1 << 24, 7}, {0, 1<<23 - 1, 1<<23 - 1}, {9, 0, 9}} {
		if got := c.from.Add(c.n); got != c.to {
			t.Errorf("%d + %d = %d, want %d", c.from, c.n, got, c.to)
		}
		if c.n == 1<<24 {
			continue
		}
		if d := c.to.Distance(c.from); d != c.n {
			t.Errorf("from %d to %d: %d, want %d", c.from, c.to, d, c.n)
		}
		if c.to.After(c.from) != (c.n > 0) || c.from.Before(c.to) != (c.n > 0) || c.to.Before(c.from) != (c.n < 0) {
			t.Errorf("%d and %d, %d apart, are in the wrong order", c.from, c.to, c.n)
		}
	}
	if MakePSN(0xff000005) != 5 || PSN(1<<23).Distance(0) != -1<<23 {
		t.Error("24 bits")
	}
}

func TestSyndrome(t *testing.T) {
	for i := range 256 {
		s := Syndrome(i)
		class := btoi(s.IsACK()) + 2*btoi(s.IsRNR()) + 4*btoi(s.IsNAK())
		if want := [8]int{1, 2, 0, 4}[i>>5]; class != want || int(s.Value()) != i&31 {
			t.Errorf("0x%02x: class %d, value %d; want %d, %d", i, class, s.Value(), want, i&31)
		}
	}
	for s, want := range map[Syndrome]string{
		0x1f: "ACK", 0x00: "ACK", 0x60: "NAK_SEQUENCE", 0x61: "NAK_INVALID_REQUEST", 0x62: "NAK_REMOTE_ACCESS", 0x63: "NAK_REMOTE_OPERATION",
		0x64: "NAK_INVALID_RD_REQUEST", 0x65: "syndrome 0x65", 0x2c: "RNR_NAK(640µs)", 0x40: "syndrome 0x40",
	} {
		if s.String() != want {
			t.Errorf("0x%02x is %q, want %q", uint8(s), s, want)
		}
	}
	if ACK != 0x1f || NAKSequence != 0x60 || NAKInvalidRDRequest != 0x64 || RNRNAK(12) != 0x2c || RNRNAK(33) != 0x21 {
		t.Error("syndromes have other numbers")
	}
}

// TestTables: timers, credits and timeouts have their first and last values, double between them,
// and match published numbers.
func TestTables(t *testing.T) {
	for code, want := range map[uint8]time.Duration{
		0: 655360 * time.Microsecond, 1: 10 * time.Microsecond, 5: 60 * time.Microsecond, 12: 640 * time.Microsecond, 14: 1280 * time.Microsecond,
		31: 491520 * time.Microsecond,
	} {
		if got := RNRDelay(code); got != want {
			t.Errorf("RNR timer %d: %v, want %v", code, got, want)
		}
	}
	for code := uint8(4); code < 32; code++ {
		if RNRDelay(code) != 2*RNRDelay(code-2) {
			t.Errorf("RNR timer %d is not twice that of %d", code, code-2)
		}
	}
	if ACK.Value() != noCredits {
		t.Errorf("an ACK of ours has credit code %d", ACK.Value())
	}
	for code, want := range map[uint8]time.Duration{0: 0, 1: 8192, 8: 1048576, 14: 67108864, 18: 1073741824, 31: 4096 << 31} {
		if got := AckTimeout(code); got != want {
			t.Errorf("timeout %d: %v, want %v", code, got, want)
		}
	}
}

func TestSourcePort(t *testing.T) {
	for _, c := range []struct {
		flow, local, remote uint32
		want                uint16
	}{{0, 0, 0, 0xc000}, {0, 17, 18, 0xc132}, {0, 0xffffff, 0xffffff, 0xff21}, {0x12345, 1, 2, 0xe341}, {0xfffff, 1, 2, 0xffc0}, {0x3fff, 0, 0, 0xffff}} {
		if got := SourcePort(c.flow, c.local, c.remote); got != c.want {
			t.Errorf("source port of %x, %d and %d: %x, want %x", c.flow, c.local, c.remote, got, c.want)
		}
		if SourcePort(c.flow, c.remote, c.local) != SourcePort(c.flow, c.local, c.remote) {
			t.Errorf("source port of %d and %d differs by direction", c.local, c.remote)
		}
	}
}
