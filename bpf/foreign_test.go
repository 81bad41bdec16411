package bpf

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

func mustIndex(t testing.TB, name string) int {
	t.Helper()
	iface, err := net.InterfaceByName(name)
	testenv.Must(t, err)
	return iface.Index
}

// newForeign loads a program that is not ours.
func newForeign(t *testing.T) *ebpf.Program {
	t.Helper()
	testenv.Root(t)
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "somebody_elses", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	testenv.Must(t, err)
	t.Cleanup(func() { p.Close() })
	return p
}

// attachForeign attaches the program in the given way, and returns how the error must describe it.
var attachForeign = map[string]func(*testing.T, *testenv.End, *ebpf.Program) (mode Mode, linked bool, remedy string){
	"netlink": func(t *testing.T, end *testenv.End, p *ebpf.Program) (Mode, bool, string) {
		setXDP(t, end, p, 0)
		return Driver, false, "ip link set dev " + end.Ifname + " xdpdrv off"
	},
	"netlink generic": func(t *testing.T, end *testenv.End, p *ebpf.Program) (Mode, bool, string) {
		setXDP(t, end, p, int(link.XDPGenericMode))
		return Generic, false, "ip link set dev " + end.Ifname + " xdpgeneric off"
	},
	"link": func(t *testing.T, end *testenv.End, p *ebpf.Program) (Mode, bool, string) {
		id := linkXDP(t, end, p, link.XDPDriverMode)
		return Driver, true, fmt.Sprintf("bpftool link detach id %d", id)
	},
	"link generic": func(t *testing.T, end *testenv.End, p *ebpf.Program) (Mode, bool, string) {
		id := linkXDP(t, end, p, link.XDPGenericMode)
		return Generic, true, fmt.Sprintf("bpftool link detach id %d", id)
	},
}

func setXDP(t *testing.T, end *testenv.End, p *ebpf.Program, flags int) {
	t.Helper()
	end.Do(t, func() {
		l, err := netlink.LinkByIndex(end.Index)
		if err == nil {
			err = netlink.LinkSetXdpFdWithFlags(l, p.FD(), flags)
		}
		testenv.Must(t, err)
	})
}

func linkXDP(t *testing.T, end *testenv.End, p *ebpf.Program, flags link.XDPAttachFlags) (id link.ID) {
	t.Helper()
	end.Do(t, func() {
		l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: end.Index, Flags: flags})
		testenv.Must(t, err)
		t.Cleanup(func() { l.Close() })
		info, err := l.Info()
		testenv.Must(t, err)
		id = info.ID
	})
	return id
}

func TestForeignProgramIsNamedAndLeftAlone(t *testing.T) {
	for way, attach := range attachForeign {
		for _, ours := range []Mode{Driver, Generic, Any} {
			t.Run(way+", ours "+ours.String(), func(t *testing.T) {
				pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
				foreign := newForeign(t)
				mode, linked, remedy := attach(t, &pair.B, foreign)
				before := programOn(t, &pair.B)
				err := attachTo(t, mustLoad(t, Config{}), &pair.B, ours)
				var named *ForeignError
				if !errors.Is(err, ErrOccupied) || !errors.As(err, &named) {
					t.Fatalf("%v, want a *ForeignError", err)
				}
				want := ForeignError{Interface: pair.B.Ifname, ID: before, Name: "somebody_elses", Mode: mode, LinkID: named.LinkID}
				if *named != want || (named.LinkID != 0) != linked {
					t.Errorf("%+v, want %+v, linked %v", *named, want, linked)
				}
				if !strings.Contains(err.Error(), remedy) {
					t.Errorf("%v\nwant the remedy %q", err, remedy)
				}
				if after := programOn(t, &pair.B); after != before || after == 0 {
					t.Errorf("program %d is on the interface, %d was", after, before)
				}
			})
		}
	}
}

func TestRemedyWorks(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	_, _, remedy := attachForeign["netlink"](t, &pair.B, newForeign(t))
	p := mustLoad(t, Config{})
	if err := attachTo(t, p, &pair.B, Driver); !errors.Is(err, ErrOccupied) {
		t.Fatalf("%v, want ErrOccupied", err)
	}
	words := strings.Fields(remedy)
	pair.B.Run(t, words[0], words[1:]...)
	testenv.Checkf(t, attachTo(t, p, &pair.B, Driver), "after %q", remedy)
	// Other tools do not replace our program by accident.
	if out, err := pair.B.Command(words[0], words[1:]...).CombinedOutput(); err == nil {
		t.Errorf("%q took our program off: %s", remedy, out)
	}
}
