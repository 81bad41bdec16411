package tcpsend

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// ingress is a program at tc's ingress that looks at the packets of the peer before TCP gets them. It notes the
// timestamp of the last one. And while a segment of ours has left that the kernel does not know yet, it lowers an
// acknowledgement of it to what the kernel knows. TCP would drop the whole packet otherwise, with the data in it
// (tcp_ack in net/ipv4/tcp_input.c). What is lowered is late, and not wrong: acknowledgements are cumulative.
//
// The program ends with the process. It believes every packet of the peer's address and ports. Who can forge one can
// spoil the peer's measurement of the round trip. Nothing else comes from here.
type ingress struct {
	link   link.Link // nil: the kernel has no tcx
	state  *ebpf.Map
	words  *[ingressWords]atomic.Uint32
	memory []byte
}

// Words of the map.
const (
	wordStamp    = iota // of the last packet that had one
	wordStamped         // packets that had one
	wordSegments        // of the peer, as the kernel counts them: a packet that GRO has made is several
	wordLimit           // sequence up to which the kernel knows what was sent
	wordArmed           // not 0: acknowledgements beyond the limit are lowered
	wordLowered         // packets
	ingressWords
)

// attach attaches the program to an interface. On a kernel before Linux 6.6 it attaches nothing.
func attach(index int, local, remote netip.AddrPort) (_ *ingress, err error) {
	i := &ingress{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("watch acknowledgements of the peer: %w", err), i.close())
		}
	}()
	i.state, err = ebpf.NewMap(&ebpf.MapSpec{Name: "ufd_ingress", Type: ebpf.Array, KeySize: 4, ValueSize: 4 * ingressWords, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		return nil, fmt.Errorf("make a map: %w%s", err, remedy(err))
	}
	if i.words, i.memory, err = mapWords(i.state.FD()); err != nil {
		return nil, fmt.Errorf("map the map: %w", err)
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "ufd_ingress", Type: ebpf.SchedCLS, Instructions: lowering(local, remote, i.state.FD()), License: "Apache-2.0"})
	if err != nil {
		return nil, fmt.Errorf("load the program: %w%s", err, remedy(err))
	}
	defer p.Close() // the link keeps it
	i.link, err = link.AttachTCX(link.TCXOptions{Interface: index, Program: p, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	switch {
	case errors.Is(err, ebpf.ErrNotSupported):
		i.link = nil
	case err != nil:
		return nil, fmt.Errorf("attach the program to interface %d: %w%s", index, err, remedy(err))
	}
	return i, nil
}

func remedy(err error) string {
	if errors.Is(err, unix.EPERM) {
		return " (run as root, or with CAP_BPF and CAP_NET_ADMIN)"
	}
	return ""
}

func (i *ingress) close() error {
	var errs []error
	if i.link != nil {
		errs = append(errs, i.link.Close())
	}
	if i.memory != nil {
		errs = append(errs, unix.Munmap(i.memory))
	}
	if i.state != nil {
		errs = append(errs, i.state.Close())
	}
	i.link, i.memory, i.words, i.state = nil, nil, nil, nil
	return errors.Join(errs...)
}

// stamp is the timestamp of the peer's last packet.
func (i *ingress) stamp() uint32 { return i.words[wordStamp].Load() }

// stamped reports whether there is one.
func (i *ingress) stamped() bool { return i.words[wordStamped].Load() != 0 }

// count is how many segments of the peer have arrived, modulo 2³².
func (i *ingress) count() uint32 { return i.words[wordSegments].Load() }

// lowered is how many acknowledgements were lowered, modulo 2³².
func (i *ingress) lowered() uint32 { return i.words[wordLowered].Load() }

// arm begins to lower acknowledgements beyond a sequence.
func (i *ingress) arm(limit uint32) {
	i.words[wordLimit].Store(limit)
	i.words[wordArmed].Store(1)
}

func (i *ingress) disarm() { i.words[wordArmed].Store(0) }

const (
	// option is the beginning of the timestamp option as stacks write it: two of no operation, kind 8, length 10 (RFC
	// 7323, appendix A).
	option = 0x0101080a
	// skbSegments is where a packet has the number of its segments, 0 for one: gso_segs of struct __sk_buff.
	skbSegments = 164
	// next passes the packet on (TCX_NEXT).
	next = -1
)

// lowering is the program. Offsets are those of an Ethernet frame without tags: the kernel takes those out before.
func lowering(local, remote netip.AddrPort, words int) asm.Instructions {
	load := func(at int32, size asm.Size, want uint32) asm.Instructions {
		return asm.Instructions{asm.LoadAbs(at, size), asm.Mov.Imm32(asm.R7, int32(want)), asm.JNE.Reg(asm.R0, asm.R7, "done")}
	}
	add := func(word uint32) asm.Instructions {
		return asm.Instructions{asm.LoadMapValue(asm.R1, words, word*4), asm.Mov.Imm(asm.R2, 1), asm.StoreXAdd(asm.R1, asm.R2, asm.Word)}
	}
	code := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	tcp := int32(etherLen)
	from, to := remote.Addr().Unmap(), local.Addr().Unmap()
	if from.Is4() {
		code = append(code, load(12, asm.Half, unix.ETH_P_IP)...)
		code = append(code, load(14, asm.Byte, 0x45)...) // no options
		code = append(code, load(23, asm.Byte, unix.IPPROTO_TCP)...)
		tcp += ipv4Len
	} else {
		code = append(code, load(12, asm.Half, unix.ETH_P_IPV6)...)
		code = append(code, load(20, asm.Byte, unix.IPPROTO_TCP)...) // no extension headers
		tcp += ipv6Len
	}
	addresses := append(from.AsSlice(), to.AsSlice()...)
	for i := 0; i < len(addresses); i += 4 {
		code = append(code, load(tcp-int32(len(addresses)-i), asm.Word, binary.BigEndian.Uint32(addresses[i:]))...)
	}
	code = append(code, load(tcp, asm.Word, uint32(remote.Port())<<16|uint32(local.Port()))...)
	code = append(code,
		asm.LoadMem(asm.R2, asm.R6, skbSegments, asm.Word), asm.JNE.Imm(asm.R2, 0, "several"), asm.Mov.Imm(asm.R2, 1),
		asm.LoadMapValue(asm.R1, words, wordSegments*4).WithSymbol("several"), asm.StoreXAdd(asm.R1, asm.R2, asm.Word))
	code = append(code, lower(tcp, words)...)
	code = append(code, add(wordLowered)...)
	code = append(code, asm.LoadAbs(tcp+12, asm.Byte).WithSymbol("stamp"), asm.JLT.Imm(asm.R0, (tcpLen+stampsLen)/4<<4, "done"))
	code = append(code, load(tcp+tcpLen, asm.Word, option)...)
	code = append(code, asm.LoadAbs(tcp+tcpLen+4, asm.Word), asm.LoadMapValue(asm.R1, words, wordStamp*4), asm.StoreMem(asm.R1, 0, asm.R0, asm.Word))
	code = append(code, add(wordStamped)...)
	return append(code, asm.Mov.Imm(asm.R0, next).WithSymbol("done"), asm.Return())
}

// lower goes to stamp if the acknowledgement is to stay, and else changes it and the checksum.
func lower(tcp int32, words int) asm.Instructions {
	const ackOffset, checksumOffset, flagsOffset = 8, 16, 13
	return asm.Instructions{
		asm.LoadMapValue(asm.R1, words, wordArmed*4), asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), asm.JEq.Imm(asm.R2, 0, "stamp"),
		asm.LoadMapValue(asm.R1, words, wordLimit*4), asm.LoadMem(asm.R9, asm.R1, 0, asm.Word),
		asm.LoadAbs(tcp+flagsOffset, asm.Byte), asm.And.Imm(asm.R0, 0x10), asm.JEq.Imm(asm.R0, 0, "stamp"), // there is none
		asm.LoadAbs(tcp+ackOffset, asm.Word), asm.Mov.Reg(asm.R8, asm.R0),
		asm.Sub.Reg32(asm.R0, asm.R9), asm.JSLE.Imm32(asm.R0, 0, "stamp"),
		asm.HostTo(asm.BE, asm.R8, asm.Word), asm.HostTo(asm.BE, asm.R9, asm.Word),
		asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, tcp+checksumOffset), asm.Mov.Reg(asm.R3, asm.R8), asm.Mov.Reg(asm.R4, asm.R9), asm.Mov.Imm(asm.R5, 4),
		asm.FnL4CsumReplace.Call(),
		asm.StoreMem(asm.RFP, -4, asm.R9, asm.Word),
		asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, tcp+ackOffset), asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -4), asm.Mov.Imm(asm.R4, 4), asm.Mov.Imm(asm.R5, 0),
		asm.FnSkbStoreBytes.Call(),
	}
}
