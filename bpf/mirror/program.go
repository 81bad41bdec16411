package mirror

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/genl"
)

const (
	// queueMapping is the offset of the queue in struct __sk_buff of include/uapi/linux/bpf.h.
	queueMapping = 12
	// next passes the packet to the next program or, after the last, on its way (TCX_NEXT, and
	// TC_ACT_UNSPEC).
	next = -1
	// drop is TCX_DROP and TC_ACT_SHOT.
	drop = 2
)

// copyTo is a program that sends a clone of each packet to an interface, to the queue of its
// direction, and counts failures. The kernel uses the packet's own queue plus one. So the program
// sets that for the clone and restores it.
func copyTo(index int, d Direction, failed int) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R7, asm.R6, queueMapping, asm.Word),
		asm.Mov.Imm(asm.R2, int32(d)+1),
		asm.StoreMem(asm.R6, queueMapping, asm.R2, asm.Word),
		asm.Mov.Imm(asm.R2, int32(index)),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnCloneRedirect.Call(),
		asm.StoreMem(asm.R6, queueMapping, asm.R7, asm.Word),
		asm.JEq.Imm(asm.R0, 0, "done"),
		asm.LoadMapValue(asm.R1, failed, uint32(d)*8),
		asm.Mov.Imm(asm.R2, 1),
		asm.StoreXAdd(asm.R1, asm.R2, asm.DWord),
		asm.Mov.Imm(asm.R0, next).WithSymbol("done"),
		asm.Return(),
	}
}

// dropAll is a program that drops each packet.
func dropAll() asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R0, drop), asm.Return()}
}

// load puts a program for tc's hooks into the kernel. The caller closes it.
func load(name string, code asm.Instructions) (*ebpf.Program, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.SchedCLS, Instructions: code, License: "Dual BSD/GPL"})
	if errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("load the program %s: %w (run as root, or with CAP_BPF and CAP_NET_ADMIN)", name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("load the program %s: %w", name, err)
	}
	return p, nil
}

// newCounters makes the map in which programs count failures: one value, with a word for each
// direction.
func newCounters() (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "ufd_failed", Type: ebpf.Array, KeySize: 4, ValueSize: 8 * uint32(directions), MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("make the map of counters: %w", err)
	}
	return m, nil
}

// Counters count the copies that were lost since Open.
type Counters struct {
	// Failed counts packets for whose copy the kernel had no memory or no queue. One of them is a packet as
	// the host has it, which may be as long as many packets of the MTU.
	Failed uint64
	// Full counts copies for which the pair's ring was full, or that were longer than the MTU when the mirror
	// was opened.
	Full uint64
}

// Counters reads the counters. For a closed mirror it returns the last values.
func (m *Mirror) Counters() (Counters, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return m.counters, nil
	}
	err := m.count()
	return m.counters, err
}

// count reads the counters that can be read.
func (m *Mirror) count() error {
	var words [directions]uint64
	if err := m.failed.Lookup(uint32(0), &words); err != nil {
		return fmt.Errorf("read the counters of the mirror of %s: %w", m.name, err)
	}
	m.counters.Failed = 0
	for _, n := range words {
		m.counters.Failed += n
	}
	link, err := m.handle.LinkByIndex(m.pair.near)
	if err != nil {
		return fmt.Errorf("mirror of %s: %w", m.name, linkError(err))
	}
	if s := link.Attrs().Statistics; s != nil {
		m.counters.Full = s.TxDropped
	}
	return nil
}

// offloads are left to the kernel for copies. Otherwise the capture would miss their results, and
// lose a tag that is stored beside the packet. Without checksum offload there is no segmentation
// offload either (netdev_fix_features, net/core/dev.c), so copies are segmented to the MTU.
var offloads = []string{"tx-checksum-ip-generic", "tx-checksum-sctp", "tx-vlan-hw-insert", "tx-vlan-stag-hw-insert"}

// offloadsOff makes the kernel do for packets that an interface sends what it would leave to a
// card.
func offloadsOff(index int) error {
	header := nl.NewRtAttr(unix.ETHTOOL_A_FEATURES_HEADER|unix.NLA_F_NESTED, nil)
	header.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_INDEX, nl.Uint32Attr(uint32(index)))
	wanted := nl.NewRtAttr(unix.ETHTOOL_A_FEATURES_WANTED|unix.NLA_F_NESTED, nil)
	bits := wanted.AddRtAttr(unix.ETHTOOL_A_BITSET_BITS|unix.NLA_F_NESTED, nil)
	for _, name := range offloads { // named without a value: off
		bit := bits.AddRtAttr(unix.ETHTOOL_A_BITSET_BITS_BIT|unix.NLA_F_NESTED, nil)
		bit.AddRtAttr(unix.ETHTOOL_A_BITSET_BIT_NAME, nl.ZeroTerminated(name))
	}
	return genl.Set(unix.ETHTOOL_GENL_NAME, unix.ETHTOOL_MSG_FEATURES_SET, header, wanted)
}
