package labenv

import (
	"slices"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// Form is a pair of cards, and a way to receive by end B: with zero copy where the
// kernel grants it, or always with the kernel's copy.
type Form struct {
	Name string
	Copy bool // zero copy is not to be asked for
	a, b string
	// Queues is the most that both cards have, mtu the longest that their drivers take
	// together with a program.
	Queues, mtu int
	drops       func(name string, frame []byte) bool
	settles     time.Duration // Cards.Settles
}

// Forms are those that tests made for veth run on as well.
var (
	IgbZeroCopy    = Form{Name: "igb zero copy", a: "igb0", b: "igb1", Queues: 4, mtu: 1500, drops: igbDrops, settles: igbSettles}
	IgbCopy        = Form{Name: "igb copy", Copy: true, a: "igb0", b: "igb1", Queues: 4, mtu: 1500, drops: igbDrops, settles: igbSettles}
	VirtioZeroCopy = Form{Name: "virtio-net", a: "virtio1", b: "virtio0", Queues: 1, mtu: 1500}
	// VirtioRefused receives by the card whose driver may not use any memory.
	VirtioRefused = Form{Name: "virtio-net refused", a: "virtio0", b: "virtio1", Queues: 1, mtu: 1500}
)

// ZeroCopy reports whether end B has zero copy in this form on the kernel that runs. It is
// the table in docs/lab.md.
func (f Form) ZeroCopy(t testing.TB) bool { return !f.Copy && f.Offers(t) }

// Offers reports whether end B would have zero copy, were it asked for.
func (f Form) Offers(t testing.TB) bool { return ZeroCopy(t, f.b) }

// ZeroCopy reports whether a card has zero copy on the kernel that runs.
func ZeroCopy(t testing.TB, card string) bool {
	t.Helper()
	return Kernel(t) == Linux7 && card != "virtio1"
}

// Waits reports whether end B has its fellow wait, and loses nothing, while its queue is
// full. igb's is never: its driver is kept from running out of frames.
func (f Form) Waits(t testing.TB) bool { return f.ZeroCopy(t) && f.b == "virtio0" }

// Instead has the test, until its end, receive from the cards wherever it makes a veth
// pair.
func (f Form) Instead(t testing.TB) {
	t.Helper()
	Kernel(t)
	f.cards().Instead(t)
}

func (f Form) cards() *testenv.Cards {
	return &testenv.Cards{A: f.a, B: f.b, MTU: f.mtu, Queues: f.Queues, Drops: f.drops, Settles: f.settles}
}

// igbSettles is a little more than the emulated card takes to agree on a speed (500 ms: e1000x_restart_autoneg in QEMU's hw/net/e1000x_common.c).
const igbSettles = 700 * time.Millisecond

// igbDrops: the emulated card looks into the packets it sends and forgets those whose
// headers lie. Shorter ones than Ethernet allows come filled up, and are counted as
// damaged as well.
func igbDrops(name string, frame []byte) bool {
	const shortest = 60
	return len(frame) < shortest || slices.Contains([]string{
		"tag and nothing behind", "IPv4 header too short", "IPv4 header longer than the frame", "IPv6 extension header longer than the frame",
	}, name)
}

// Igb returns the two igb cards, which are on one wire, each set up in a namespace of
// its own and without addresses. At the end of the test they are back where they were.
func Igb(t testing.TB) *testenv.Pair { t.Helper(); return IgbCopy.pair(t) }

// VirtioNet is Igb with virtio cards. The driver of A, virtio0, may use any memory; the
// driver of B only what the emulator is told of, and so never grants zero copy.
func VirtioNet(t testing.TB) *testenv.Pair { t.Helper(); return VirtioRefused.pair(t) }

func (f Form) pair(t testing.TB) *testenv.Pair {
	t.Helper()
	Kernel(t)
	c := f.cards()
	c.Take(t)
	return c.Pair(t, testenv.PairOptions{MTU: f.mtu, Queues: min(2, f.Queues), NoAddresses: true})
}

// Carry waits until both cards have a link. A card that is given a program or a
// socket loses it for a moment.
func Carry(t testing.TB, p *testenv.Pair) { t.Helper(); p.Carry(t) }
