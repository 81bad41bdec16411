package testenv

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Direction is a direction of the link between an end and its switch.
type Direction uint32

// The directions.
const (
	FromEnd Direction = netlink.HANDLE_MIN_INGRESS // what the end sends
	ToEnd   Direction = netlink.HANDLE_MIN_EGRESS  // what it receives
)

// Lose makes the switch drop all frames of an end in one direction, or only those of TCP from and to a port if
// tcp is not 0. The end of the test, or mend if it is called before, undoes all of the end's losses. The
// interfaces stay up.
func (e *End) Lose(t testing.TB, d Direction, tcp uint16) (mend func()) {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "Apache-2.0", Instructions: dropping(tcp)})
	Mustf(t, err, "load a program that drops frames")
	defer p.Close()
	h, link := e.port.handle(t), e.port.link(t)
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
	Mustf(t, h.QdiscReplace(qdisc), "prepare %s for a program", e.port.Ifname)
	mend = func() { _ = h.QdiscDel(qdisc) } // gone if another loss was undone, or the link
	t.Cleanup(mend)
	filter := &netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{LinkIndex: link.Attrs().Index, Parent: uint32(d), Priority: 1, Protocol: unix.ETH_P_ALL}, Fd: p.FD(), Name: "drop", DirectAction: true}
	Mustf(t, h.FilterAdd(filter), "drop frames at %s", e.port.Ifname)
	return mend
}

// What the program returns, and offsets in a frame of IPv4 without options (linux/pkt_cls.h, RFC 791, RFC 9293).
const (
	passFrame, dropFrame       = 0, 2
	atType, atProtocol         = 12, 23
	atSourcePort, atTargetPort = 34, 36
)

// dropping returns a program that drops what Lose says. A frame that is too short to be looked at passes.
func dropping(tcp uint16) (all asm.Instructions) {
	if tcp != 0 {
		all = asm.Instructions{
			asm.Mov.Reg(asm.R6, asm.R1), // loads of packets take the context from here
			asm.LoadAbs(atType, asm.Half), asm.JNE.Imm(asm.R0, unix.ETH_P_IP, "pass"),
			asm.LoadAbs(atProtocol, asm.Byte), asm.JNE.Imm(asm.R0, unix.IPPROTO_TCP, "pass"),
			asm.LoadAbs(atSourcePort, asm.Half), asm.JEq.Imm(asm.R0, int32(tcp), "drop"),
			asm.LoadAbs(atTargetPort, asm.Half), asm.JEq.Imm(asm.R0, int32(tcp), "drop"),
			asm.Mov.Imm(asm.R0, passFrame).WithSymbol("pass"), asm.Return(),
		}
	}
	return append(all, asm.Mov.Imm(asm.R0, dropFrame).WithSymbol("drop"), asm.Return())
}
