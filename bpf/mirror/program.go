package mirror

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
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
