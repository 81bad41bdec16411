package doctor

import (
	"errors"
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/caps"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/verbs"
)

// Errors and remedies as in rdma/verbs.
var (
	errNoLibrary = errors.New("RDMA over libibverbs: not supported here: libibverbs.so.1: cannot open shared object file: No such file or directory " +
		"(Debian: apt-get install libibverbs1 ibverbs-providers)")
	errNoAccess = errors.New("open RDMA device mlx5_0: permission denied (give the user access to /dev/infiniband/uverbs*)")
)

const lowMTU = "packets carry 1024 bytes; with an MTU of eth0 of 4176 they would carry 4096 (ip link set dev eth0 mtu 4176)"

func module(name string, loaded bool) verbs.Module {
	return verbs.Module{Name: name, For: "its use", Loaded: loaded}
}

// bare has no part of RDMA, full has a device that works, and poor one that does not.
var (
	bare = verbs.Machine{Library: errNoLibrary, Modules: []verbs.Module{module("ib_uverbs", false), module("rdma_rxe", false)}, Memlock: 8 << 20}
	full = verbs.Machine{Modules: []verbs.Module{module("ib_uverbs", true), module("rdma_rxe", true)}, Memlock: math.MaxUint64,
		Devices: []verbs.Found{{Name: "rxe0", Capabilities: rdma.Capabilities{MaxQueuePairs: 1000, MaxWorkRequests: 4096, MaxMemoryRegion: math.MaxUint64, Atomics: true},
			Ports: []verbs.FoundPort{{Port: rdma.Port{Number: 1, Active: true, State: "ACTIVE", LinkLayer: rdma.LinkEthernet, ActiveMTU: rdma.MTU1024, MaxMTU: rdma.MTU4096},
				GIDs: []rdma.GIDEntry{{Index: 1, Type: rdma.RoCE2, GID: mustGID("10.0.0.1")}}, Interface: "eth0", InterfaceMTU: 1500, Advice: []string{lowMTU}}}}}}
	poor = verbs.Machine{Library: errNoLibrary, Modules: []verbs.Module{module("ib_uverbs", false), module("rdma_rxe", false)}, Memlock: 8 << 20,
		Devices: []verbs.Found{{Name: "mlx5_0", Err: errNoAccess, Ports: []verbs.FoundPort{{
			Port:   rdma.Port{Number: 1, State: "DOWN", LinkLayer: rdma.LinkEthernet},
			Advice: []string{"the port is DOWN: set its network interface up, and look at the cable", "the port has no address for RoCE v2: give its network interface an IP address"}}}},
			{Name: "mlx5_1"}}}
)

func mustGID(text string) rdma.GID { return rdma.GIDOf(netip.MustParseAddr(text)) }

const rdmaTable = `bare
  ok    libibverbs        RDMA over libibverbs: not supported here: libibverbs.so.1: cannot open shared object file: No such file or directory
                          -> Debian: apt-get install libibverbs1 ibverbs-providers
  ok    module ib_uverbs  not loaded: its use
                          -> modprobe ib_uverbs
  ok    module rdma_rxe   not loaded: its use
                          -> run a kernel that has rdma_rxe: this one does not
  ok    devices           none
                          -> for Soft-RoCE: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev IFACE

full
  ok    libibverbs        there
  ok    module ib_uverbs  loaded: its use
  ok    module rdma_rxe   loaded: its use
  ok    devices           rxe0

rxe0
  ok    device            it opens; 1000 queue pairs of 4096 work requests, registrations of up to any size, atomics: yes
  ok    port 1            ACTIVE, Ethernet, interface eth0 of MTU 1500, 1024 bytes in a packet, of 4096
  ok    port 1 GID 1      10.0.0.1, RoCE v2
  warn  port 1 advice     packets carry 1024 bytes; with an MTU of eth0 of 4176 they would carry 4096
                          -> ip link set dev eth0 mtu 4176

poor
  warn  libibverbs        RDMA over libibverbs: not supported here: libibverbs.so.1: cannot open shared object file: No such file or directory
                          -> Debian: apt-get install libibverbs1 ibverbs-providers
  warn  module ib_uverbs  not loaded: its use
                          -> modprobe ib_uverbs
  ok    module rdma_rxe   not loaded: its use
                          -> run a kernel that has rdma_rxe: this one does not
  ok    devices           mlx5_0, mlx5_1

mlx5_0
  warn  device            open RDMA device mlx5_0: permission denied
                          -> give the user access to /dev/infiniband/uverbs*
  ok    port 1            DOWN, Ethernet
  warn  port 1 advice     the port is DOWN
                          -> set its network interface up, and look at the cable
  warn  port 1 advice     the port has no address for RoCE v2
                          -> give its network interface an IP address

mlx5_1
  ok    device            it opens; 0 queue pairs of 0 work requests, registrations of up to 0 KiB, atomics: no
  warn  ports             none
                          -> look at the kernel's log: dmesg

7 warn, 15 ok
`

// TestRDMATable: the table for machines with and without RDMA has the expected text.
func TestRDMATable(t *testing.T) {
	offered := []string{"kernel/drivers/infiniband/core/ib_uverbs.ko.xz: kernel/x/rdma_rxe.ko.xz"}
	var r Report
	for _, c := range []struct {
		name string
		m    verbs.Machine
	}{{"bare", bare}, {"full", full}, {"poor", poor}} {
		r.add(c.name, rdmaOf(c.m, offered))
		for _, d := range c.m.Devices {
			r.add(d.Name, rdmaDevice(d))
		}
	}
	var b strings.Builder
	testenv.Must(t, r.Table(&b, false))
	if b.String() != rdmaTable {
		t.Errorf("the table is\n%s\nwant\n%s", b.String(), rdmaTable)
	}
}

func TestPinnedMemory(t *testing.T) {
	const need = 256 << 20
	unlimited, low := full, full
	low.Memlock = need - 1
	expect(t, "unlimited", judgePinned(need, unlimited, 0), OK, "limit unlimited; a region of 256 MiB")
	expect(t, "too low", judgePinned(need, low, 0), Warn, "LimitMEMLOCK=256M (ulimit -l 262144)")
	expect(t, "capable", judgePinned(need, low, caps.IPCLock), OK, "which CAP_IPC_LOCK lifts")
	expect(t, "no device", judgePinned(need, bare, 0), OK, "limit 8 MiB")
	low.Memlock = need
	expect(t, "just enough", judgePinned(need, low, 0), OK, "registered once")
}

func TestAdvised(t *testing.T) {
	for text, want := range map[string][2]string{
		"plain":                {"plain", ""},
		"a (b) c":              {"a (b) c", ""},
		"a: b (do: this)":      {"a: b", "do: this"},
		"a: b: do (x) at once": {"a: b", "do (x) at once"},
	} {
		if c := advised(warn, "x", text); c.Detail != want[0] || c.Remedy != want[1] {
			t.Errorf("%q gives %q -> %q", text, c.Detail, c.Remedy)
		}
	}
}
