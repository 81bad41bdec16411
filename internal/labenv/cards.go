package labenv

import (
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// Form is a pair of cards, and a way to receive by end B: with zero copy where the
// kernel grants it, or always with the kernel's copy.
type Form struct {
	Name string
	Copy bool // do not ask for zero copy
	a, b string
	// Queues is the largest number of queues that both cards have. mtu is the largest MTU that both
	// drivers accept together with an XDP program.
	Queues, mtu int
	drops       func(name string, frame []byte) bool
	settles     time.Duration // Cards.Settles
}

// The forms in which tests written for veth run as well.
var (
	IgbZeroCopy    = Form{Name: "igb zero copy", a: "igb0", b: "igb1", Queues: 4, mtu: 1500, drops: igbDrops, settles: igbSettles}
	IgbCopy        = Form{Name: "igb copy", Copy: true, a: "igb0", b: "igb1", Queues: 4, mtu: 1500, drops: igbDrops, settles: igbSettles}
	VirtioZeroCopy = Form{Name: "virtio-net", a: "virtio1", b: "virtio0", Queues: 1, mtu: 1500}
	// VirtioRefused receives on the card whose driver cannot access all memory.
	VirtioRefused = Form{Name: "virtio-net refused", a: "virtio0", b: "virtio1", Queues: 1, mtu: 1500}
)

// ZeroCopy reports whether end B has zero copy in this form on the running kernel. It matches the
// table in docs/background/testing.md.
func (f Form) ZeroCopy(t testing.TB) bool { return !f.Copy && f.Offers(t) }

// Offers reports whether the card of end B supports zero copy, even if this form does not ask for
// it.
func (f Form) Offers(t testing.TB) bool { return ZeroCopy(t, f.b) }

// ZeroCopy reports whether a card has zero copy on the running kernel.
func ZeroCopy(t testing.TB, card string) bool {
	t.Helper()
	return Kernel(t) == Linux7 && card != "virtio1"
}

// Waits reports whether end A waits, and no packet is lost, while the queue of end B is full. igb
// never makes it wait, because the port keeps its driver from running out of frames.
func (f Form) Waits(t testing.TB) bool { return f.ZeroCopy(t) && f.b == "virtio0" }

// Instead makes the test use these cards wherever it makes a veth pair, until the test ends.
func (f Form) Instead(t testing.TB) {
	t.Helper()
	Kernel(t)
	f.cards().Instead(t)
}

// Each runs tests as parts of a test, under their names without Test, but those that leftOut gives a reason for.
func Each(t *testing.T, leftOut func(name string) (why string), tests ...func(*testing.T)) {
	t.Helper()
	for _, run := range tests {
		name := runtime.FuncForPC(reflect.ValueOf(run).Pointer()).Name()
		name = name[strings.LastIndex(name, ".Test")+len(".Test"):]
		if why := leftOut(name); why != "" {
			t.Logf("%s is left out: %s", name, why)
			continue
		}
		t.Run(name, run)
	}
}

func (f Form) cards() *testenv.Cards {
	return &testenv.Cards{A: f.a, B: f.b, MTU: f.mtu, Queues: f.Queues, Drops: f.drops, Settles: f.settles}
}

// igbSettles is a little more than the emulated card takes to agree on a speed (500 ms: e1000x_restart_autoneg in QEMU's hw/net/e1000x_common.c).
const igbSettles = 700 * time.Millisecond

// igbDrops reports whether the emulated card drops a frame. The card parses the packets that it
// sends and drops those with wrong lengths in their headers. It pads frames that are shorter than
// the Ethernet minimum, and counts them as damaged too.
func igbDrops(name string, frame []byte) bool {
	const shortest = 60
	return len(frame) < shortest || slices.Contains([]string{
		"tag and nothing behind", "IPv4 header too short", "IPv4 header longer than the frame", "IPv6 extension header longer than the frame",
	}, name)
}

// Igb returns the two igb cards, which share one wire. Each is up in a namespace of its own and has
// no addresses. The end of the test moves them back.
func Igb(t testing.TB) *testenv.Pair { t.Helper(); return IgbCopy.pair(t) }

// VirtioNet is Igb with virtio cards. The driver of A, virtio0, can access all memory. The driver
// of B can access only the memory that the emulator grants it, so it never grants zero copy.
func VirtioNet(t testing.TB) *testenv.Pair { t.Helper(); return VirtioRefused.pair(t) }

func (f Form) pair(t testing.TB) *testenv.Pair {
	t.Helper()
	Kernel(t)
	c := f.cards()
	c.Take(t)
	return c.Pair(t, testenv.PairOptions{MTU: f.mtu, Queues: min(2, f.Queues), NoAddresses: true})
}

// Carry waits until both cards have a link. A card loses its link for a moment when it gets a
// program or a socket.
func Carry(t testing.TB, p *testenv.Pair) { t.Helper(); p.Carry(t) }
