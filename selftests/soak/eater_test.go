package soak

import (
	"net"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// The eater loads part of an Ethernet and IPv4 packet, beginning with the IP protocol. It checks
// the protocol, the UDP destination port and the RDMA opcode.
const (
	viewAt      = 14 + 9
	portAt      = 14 + 20 + 2 - viewAt
	operationAt = 14 + 20 + 8 - viewAt
	viewed      = operationAt + 1
)

// Opcodes of the last packets of longer messages of an RC queue pair.
var (
	lastOfSend  = []int32{0x02}
	lastOfWrite = []int32{0x08, 0x09}
)

// eat makes the hub drop packets with these opcodes that come from a site or go to it, until stop
// is called. Messages of several packets then begin and never end.
func (w *world) eat(t *testing.T, s *site, operations []int32) (stop func()) {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: eater(operations)})
	testenv.Must(t, err)
	links := []link.Link{}
	w.hub.Do(t, func() {
		i, err := net.InterfaceByName(s.name)
		testenv.Must(t, err)
		for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
			l, err := link.AttachTCX(link.TCXOptions{Interface: i.Index, Program: p, Attach: at})
			testenv.Must(t, err)
			links = append(links, l)
		}
	})
	return func() {
		for _, l := range links {
			l.Close()
		}
		p.Close()
	}
}

// eater drops (TC_ACT_SHOT) RoCE packets with one of these opcodes.
func eater(operations []int32) asm.Instructions {
	const view = -24 // on the stack
	all := asm.Instructions{
		asm.Mov.Imm(asm.R2, 0),
		asm.StoreMem(asm.RFP, view, asm.R2, asm.DWord), asm.StoreMem(asm.RFP, view+8, asm.R2, asm.DWord), asm.StoreMem(asm.RFP, view+16, asm.R2, asm.DWord),
		asm.Mov.Imm(asm.R2, viewAt),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, view),
		asm.Mov.Imm(asm.R4, viewed),
		asm.FnSkbLoadBytes.Call(),
		asm.JNE.Imm(asm.R0, 0, "pass"), // a short packet
		asm.LoadMem(asm.R1, asm.RFP, view, asm.Byte), asm.JNE.Imm(asm.R1, 17, "pass"),
		asm.LoadMem(asm.R1, asm.RFP, view+portAt, asm.Byte), asm.JNE.Imm(asm.R1, 4791>>8, "pass"),
		asm.LoadMem(asm.R1, asm.RFP, view+portAt+1, asm.Byte), asm.JNE.Imm(asm.R1, 4791&0xff, "pass"),
		asm.LoadMem(asm.R1, asm.RFP, view+operationAt, asm.Byte),
	}
	for _, o := range operations {
		all = append(all, asm.JEq.Imm(asm.R1, o, "drop"))
	}
	return append(all,
		asm.Mov.Imm(asm.R0, 0).WithSymbol("pass"), asm.Return(),
		asm.Mov.Imm(asm.R0, 2).WithSymbol("drop"), asm.Return())
}
