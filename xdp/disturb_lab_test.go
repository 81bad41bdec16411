package xdp

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestDisturbed: after each thing that an administrator may do to a card under traffic, packets
// arrive and leave again, with the sockets still bound.
func TestDisturbed(t *testing.T) {
	labenv.Guest(t)
	onSetups(t, func(t *testing.T, w *ward) {
		stripped := strips(t, &w.pair.B)
		w.admit()
		for _, d := range w.disturbances() {
			w.try(d[0], d[1:]...)
			w.well(strings.Join(d, " "))
		}
		w.flap()
		// What the administrator has turned on meanwhile stays on.
		stripped = stripped || strips(t, &w.pair.B)
		w.discharge()
		untouched(t, &w.pair.B, stripped)
	})
}

// disturbances are commands that a socket survives. The kernel refuses some of them.
func (w *ward) disturbances() [][]string {
	card := w.pair.B.Ifname
	all := [][]string{
		{"ethtool", "-G", card, "rx", "512"},
		{"ip", "link", "set", card, "mtu", "1450"},
		{"ip", "link", "set", card, "mtu", "1500"},
		{"ip", "link", "set", card, "mtu", "9000"},
		{"ethtool", "-G", card, "rx", "256", "tx", "128"},
		{"ethtool", "-K", card, "gro", "off", "rx", "off", "tx", "off"},
		{"ethtool", "-K", card, "gro", "on", "rx", "on", "tx", "on"},
		{"ethtool", "-K", card, "rxvlan", "on"},
		{"ethtool", "-L", card, "combined", "1"},
		{"ethtool", "-r", card},
		{"ip", "link", "set", card, "promisc", "on"},
		{"ip", "link", "set", card, "promisc", "off"},
	}
	if testing.Short() {
		return all[:1]
	}
	if labenv.Kernel(w) == labenv.Linux61 { // there, virtio_net refuses such an MTU while a program is attached
		all = append(all, []string{"ip", "link", "set", card, "mtu", "1500"})
	}
	return all
}

// try runs a program that changes the card, or that the kernel refuses, while packets flow.
func (w *ward) try(name string, args ...string) {
	w.Helper()
	begin := time.Now()
	cmd := w.pair.B.Command(name, args...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		out, err := cmd.CombinedOutput()
		w.Logf("%s %s (%v): %v %s", name, strings.Join(args, " "), time.Since(begin), err, strings.TrimSpace(string(out)))
	}()
	for {
		select {
		case <-done:
			return
		default:
			w.pass(time.Millisecond)
		}
	}
}

// flap sets the card down and up again, at different moments.
func (w *ward) flap() {
	w.Helper()
	rounds := 1
	if !testing.Short() {
		rounds = 4
	}
	for round := range rounds {
		w.try("ip", "link", "set", w.pair.B.Ifname, "down")
		w.pass(time.Duration(round+1) * 20 * time.Millisecond)
		if err := w.i.Check(); !errors.Is(err, ErrInterfaceDown) {
			w.Errorf("Check of a card that is down: %v", err)
		}
		if !errors.Is(w.kick, ErrInterfaceDown) {
			w.Errorf("Kick of a card that is down: %v", w.kick)
		}
		w.try("ip", "link", "set", w.pair.B.Ifname, "up")
	}
	w.well("flaps")
}

// TestProgramTaken: Check reports that another process has detached or replaced the program.
func TestProgramTaken(t *testing.T) {
	labenv.Guest(t)
	onSetups(t, func(t *testing.T, w *ward) {
		stripped := strips(t, &w.pair.B)
		for name, take := range map[string]func(testing.TB, link.Link){"detached": takeOff, "replaced": putOther} {
			if name == "replaced" && testing.Short() {
				continue
			}
			w.admit()
			w.withLink(take)
			err := w.i.Check()
			if t.Log(err); !errors.Is(err, ErrProgramGone) {
				t.Errorf("%s, Check: %v", name, err)
			}
			w.silent(name)
			w.discharge()
			untouched(t, &w.pair.B, stripped)
		}
	})
}

// silent fails the test if packets arrive that were not in the rings already.
func (w *ward) silent(after string) {
	w.Helper()
	for idle := 0; idle < 10; idle++ { // the rings may have been full
		if w.round() > 0 {
			idle = 0
		}
		time.Sleep(time.Millisecond)
	}
	before := w.received
	if w.pass(200 * time.Millisecond); w.received != before {
		w.Errorf("%s: %d packets came all the same", after, w.received-before)
	}
}

// withLink calls f with the BPF link of the program on the card, which any process with the rights can get.
func (w *ward) withLink(f func(testing.TB, link.Link)) {
	w.Helper()
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err == nil && info.XDP() != nil && uint32(info.Program) == w.i.shared.programID {
			f(w, it.Link)
			return
		}
	}
	w.Fatalf("no link holds program %d: %v", w.i.shared.programID, it.Err())
}

func takeOff(t testing.TB, l link.Link) {
	t.Helper()
	testenv.Must(t, l.Detach())
}

// putOther replaces our program with one that leaves every packet to the kernel.
func putOther(t testing.TB, l link.Link) {
	t.Helper()
	pass, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, AttachType: ebpf.AttachXDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	testenv.Must(t, err)
	defer pass.Close()
	testenv.Must(t, l.Update(pass))
}

// TestCardGone: if the card is moved to another namespace or loses its driver while sockets are
// bound to it, everything closes without an error. The card can be used again when it is back.
func TestCardGone(t *testing.T) {
	labenv.Guest(t)
	takes := []func(*ward) (back func()){(*ward).unbind, (*ward).move}
	if testing.Short() {
		takes = takes[:1]
	}
	onSetups(t, func(t *testing.T, w *ward) {
		for _, take := range takes {
			w.admit()
			back := take(w)
			w.pass(20 * time.Millisecond)
			err := w.i.Check()
			if t.Log(err); !errors.Is(err, ErrInterfaceGone) {
				t.Errorf("Check: %v", err)
			}
			if t.Log(w.kick); !errors.Is(w.kick, ErrInterfaceGone) && !errors.Is(w.kick, ErrInterfaceDown) {
				t.Errorf("Kick: %v", w.kick)
			}
			w.silent("gone")
			w.discharge()
			back()
		}
		if !testing.Short() {
			w.admit()
			w.discharge()
		}
	})
}

// move moves the card to another namespace.
func (w *ward) move() (back func()) {
	w.Helper()
	home, away := w.pair.B, testenv.End{Namespace: testenv.NewNamespace(w), Ifname: w.pair.B.Ifname}
	w.relocate(&home, &away)
	return func() { w.relocate(&away, &w.pair.B) }
}

// relocate moves a card from one namespace to another and sets it up there.
func (w *ward) relocate(from, to *testenv.End) {
	w.Helper()
	from.Run(w, "ip", "link", "set", from.Ifname, "netns", to.Name)
	to.Run(w, "ip", "link", "set", to.Ifname, "up")
	findEnd(w, to)
}

// findEnd looks up an end again. Its index may have changed.
func findEnd(t testing.TB, e *testenv.End) {
	t.Helper()
	e.Do(t, func() {
		l, err := netlink.LinkByName(e.Ifname)
		testenv.Must(t, err)
		e.Index = l.Attrs().Index
	})
}

// unbind unbinds the driver from the card.
func (w *ward) unbind() (back func()) {
	w.Helper()
	e := &w.pair.B
	device := w.bus(e)
	driver, err := filepath.EvalSymlinks("/sys/bus/pci/devices/" + device + "/driver")
	testenv.Must(w, err)
	begin := time.Now()
	w.write(filepath.Join(driver, "unbind"), device)
	w.Logf("%s let go of %s after %v", filepath.Base(driver), device, time.Since(begin))
	return func() {
		w.write(filepath.Join(driver, "bind"), device)
		w.adopt(e)
	}
}

// bus returns the card's address on the bus.
func (w *ward) bus(e *testenv.End) (at string) {
	w.Helper()
	e.Do(w, func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		testenv.Must(w, err)
		defer unix.Close(fd)
		info, err := unix.IoctlGetEthtoolDrvinfo(fd, e.Ifname)
		testenv.Must(w, err)
		at = unix.ByteSliceToString(info.Bus_info[:])
	})
	return at
}

// write writes a value to a kernel file while the ward continues its rounds.
func (w *ward) write(file, value string) {
	w.Helper()
	done := make(chan error, 1)
	go func() { done <- os.WriteFile(file, []byte(value), 0) }()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); w.pass(time.Millisecond) {
		select {
		case err := <-done:
			testenv.Must(w, err)
			return
		default:
		}
	}
	w.Fatalf("the kernel hangs over %q to %s", value, file)
}

// adopt finds a card that has just appeared, in the namespace where new cards appear, and moves it
// to its old place.
func (w *ward) adopt(e *testenv.End) {
	w.Helper()
	testenv.Wait(w, 20*time.Second, "the card", func() bool {
		links, err := netlink.LinkList()
		testenv.Must(w, err)
		for _, l := range links {
			if l.Attrs().HardwareAddr.String() == e.MAC.String() {
				w.settle(l, e)
				return true
			}
		}
		return false
	})
}

func (w *ward) settle(l netlink.Link, e *testenv.End) {
	w.Helper()
	err := netlink.LinkSetName(l, e.Ifname)
	testenv.Must(w, err)
	fd, err := os.Open("/run/netns/" + e.Name)
	testenv.Must(w, err)
	defer fd.Close()
	testenv.Must(w, netlink.LinkSetNsFd(l, int(fd.Fd())))
	e.Run(w, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/"+e.Ifname+"/disable_ipv6")
	e.Run(w, "ip", "link", "set", e.Ifname, "up")
	findEnd(w, e)
}
