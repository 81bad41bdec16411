package xdp

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestCardStamps: packets with times of a real card's clock, and packets without, arrive in one stream,
// each with the right time. The emulated card stamps a packet of the Precision Time Protocol, and its
// driver gives the time only to the stack. veth's driver gives programs the time that a packet of the stack
// has. So the test sends the packets from the card to a veth pair. The emulated card stamps one packet
// after each reset: it then waits until a register is read that drivers do not read.
func TestCardStamps(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, "make lab runs this")
	pair := labenv.Igb(t)
	card := &pair.B
	out := vethAt(t, card)
	if err := probeStamps(t, out); err != nil {
		if !errors.Is(err, ErrNotSupported) || labenv.Kernel(t) != labenv.Linux61 {
			t.Fatal(err)
		}
		return
	}
	clock := stampPTP(t, card)
	stripOuter(t, card)
	card.Run(t, "tc", "qdisc", "add", "dev", card.Ifname, "clsact")
	card.Run(t, "tc", "filter", "add", "dev", card.Ifname, "ingress", "matchall",
		"action", "mirred", "egress", "redirect", "dev", "lead0")
	g := newRig(t, umem.Config{Size: 8 << 20})
	i := g.open(out, Config{Timestamps: true, CardClock: RequireCard, RingSize: 512, Shape: umem.Shape{Headroom: 284}})
	p := i.Ports()[0]
	g.supply(p, 300)
	g.start(i)
	for round := range 2 {
		card.Run(t, "ip", "link", "set", card.Ifname, "down")
		card.Run(t, "ip", "link", "set", card.Ifname, "up")
		labenv.Carry(t, pair)
		g.stamped(i, pair, out, clock)
		if s := g.stats(p); s.Stamped != uint64(round+1) {
			t.Errorf("the counter says that %d packets have a time of the card", s.Stamped)
		}
	}
}

// stamped sends packets, one of which the card stamps, and compares the times.
func (g *rig) stamped(i *Interface, pair *testenv.Pair, out *testenv.End, clock cardClock) {
	g.Helper()
	const n, event = 20, 7
	all := make([][]byte, n)
	for k := range all {
		all[k] = inOuter(pair, packet(&pair.A, out, uint32(k), 200), k == event)
	}
	clock.set(g, 1_000_000_000) // the year 2001
	before, systemBefore := clock.read(), uint64(time.Now().UnixNano())
	testenv.SendRaw(g, &pair.A, all, testenv.SendOptions{Rate: 200})
	got := g.receiveAny(i, n)
	after, systemAfter := clock.read(), uint64(time.Now().Add(time.Millisecond).UnixNano())
	for k, f := range got {
		if !bytes.Equal(g.region.Bytes(f), packet(&pair.A, out, uint32(k), 200)) {
			g.Fatalf("packet %d came as %x", k, g.region.Bytes(f))
		}
		side, want, low, high := g.region.Side(f), umem.SystemClock, systemBefore, systemAfter
		if k == event {
			want, low, high = umem.CardClock, before, after
		}
		if side.Clock != want || side.Stamp < low || side.Stamp > high {
			g.Errorf("packet %d has time %d of clock %d, not from %d to %d of clock %d", k, side.Stamp, side.Clock, low, high, want)
		}
	}
	g.worker.Give(got)
}

// TestCardsWithoutStamps: no driver of the lab's cards gives programs the card's time.
func TestCardsWithoutStamps(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, "make lab runs this")
	for _, pair := range []*testenv.Pair{labenv.Igb(t), labenv.VirtioNet(t)} {
		g := newRig(t, umem.Config{Size: 8 << 20})
		i, err := g.tryOpen(&pair.B, Config{Timestamps: true, CardClock: RequireCard})
		if t.Log(err); !errors.Is(err, ErrNoCardClock) {
			t.Errorf("%s: %v", pair.B.Ifname, err)
		}
		if err == nil {
			i.Close()
		}
		i = g.open(&pair.B, Config{Timestamps: true, CardClock: PreferCard})
		if got := i.Granted(); got.CardClock || got.NoCardClock == nil || got.PTPClock != -1 {
			t.Errorf("%s: %+v", pair.B.Ifname, got)
		}
	}
}

// vethAt makes a veth pair beside a card, and returns the end that receives the card's packets.
func vethAt(t testing.TB, card *testenv.End) *testenv.End {
	t.Helper()
	out := &testenv.End{Namespace: card.Namespace, Ifname: "lead1", MAC: []byte{2, 0x77, 0, 0, 0, 9}}
	card.Run(t, "ip", "link", "add", "lead0", "type", "veth", "peer", "name", out.Ifname, "address", out.MAC.String())
	card.Run(t, "ip", "link", "set", "lead0", "up")
	card.Run(t, "ip", "link", "set", out.Ifname, "up")
	findEnd(t, out)
	return out
}

// cardClock is the clock of a card (FD_TO_CLOCKID of the kernel's
// tools/testing/selftests/ptp/testptp.c).
type cardClock int32

func (c cardClock) read() uint64 { return now(int32(c)) }

func (c cardClock) set(t testing.TB, seconds int64) {
	t.Helper()
	testenv.Must(t, unix.ClockSettime(int32(c), &unix.Timespec{Sec: seconds}))
}

// stampPTP makes the card stamp packets of the Precision Time Protocol.
func stampPTP(t testing.TB, card *testenv.End) cardClock {
	t.Helper()
	number := int32(-1)
	card.Do(t, func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		testenv.Must(t, err)
		defer unix.Close(fd)
		err = unix.IoctlSetHwTstamp(fd, card.Ifname, &unix.HwTstampConfig{Rx_filter: unix.HWTSTAMP_FILTER_PTP_V2_EVENT})
		testenv.Must(t, err)
		info, err := unix.IoctlGetEthtoolTsInfo(fd, card.Ifname)
		testenv.Must(t, err)
		number = info.Phc_index
	})
	f, err := os.OpenFile(fmt.Sprintf("/dev/ptp%d", number), os.O_RDWR, 0)
	testenv.Must(t, err)
	t.Cleanup(func() { f.Close() })
	return cardClock(^int32(f.Fd())<<3 | 3)
}

// outer is the length of the outer header of each packet on the wire. The driver must keep that much room
// in front of packets that it passes on. Otherwise veth copies the packet and its time is lost.
const outer = 96

// stripOuter makes the card's driver remove the outer header.
func stripOuter(t testing.TB, card *testenv.End) {
	t.Helper()
	strip, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R2, outer), asm.FnXdpAdjustHead.Call(), asm.Mov.Imm(asm.R0, 2), asm.Return(),
	}})
	testenv.Must(t, err)
	defer strip.Close()
	card.Do(t, func() {
		l, err := link.AttachXDP(link.XDPOptions{Program: strip, Interface: card.Index, Flags: link.XDPDriverMode})
		testenv.Must(t, err)
		t.Cleanup(func() { l.Close() })
	})
}

// inOuter adds the outer header that stripOuter removes. With event the packet is an event of the
// Precision Time Protocol over Ethernet (IEEE 1588 annex F: a Sync message, version 2).
func inOuter(pair *testenv.Pair, inner []byte, event bool) []byte {
	b := make([]byte, outer, outer+len(inner))
	copy(b, pair.B.MAC)
	copy(b[6:], pair.A.MAC)
	copy(b[12:], []byte{0x88, 0xb6})
	if event {
		copy(b[12:], []byte{0x88, 0xf7, 0x00, 0x02})
	}
	return append(b, inner...)
}
