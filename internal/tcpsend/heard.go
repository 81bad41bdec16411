package tcpsend

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// heard knows the timestamp of the peer's last packet, and how many there were. A filter of a packet socket looks at
// the packets, and lets none into the socket: so it costs no copy, and is gone with the process.
//
// The filter believes every packet of the peer's address and ports. Who can forge one can spoil the peer's measurement
// of the round trip. Nothing else comes from here.
type heard struct {
	socket int
	counts *ebpf.Map
	words  *[heardWords]atomic.Uint32
	memory []byte
	any    bool
}

// Words of the map.
const (
	wordStamp   = iota // of the last packet that had one
	wordStamped        // packets that had one
	wordPackets        // of the peer
	heardWords
)

// listen begins to listen for packets of the peer on an interface.
func listen(index int, local, remote netip.AddrPort) (_ *heard, err error) {
	h := &heard{socket: -1}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("listen for timestamps of the peer: %w", err), h.close())
		}
	}()
	h.counts, err = ebpf.NewMap(&ebpf.MapSpec{Name: "ufd_heard", Type: ebpf.Array, KeySize: 4, ValueSize: 4 * heardWords, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		return nil, fmt.Errorf("make a map: %w%s", err, remedy(err))
	}
	if h.words, h.memory, err = mapWords(h.counts.FD()); err != nil {
		return nil, fmt.Errorf("map the map: %w", err)
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "ufd_heard", Type: ebpf.SocketFilter, Instructions: hearing(local, remote, h.counts.FD()), License: "Apache-2.0"})
	if err != nil {
		return nil, fmt.Errorf("load the filter: %w%s", err, remedy(err))
	}
	defer p.Close() // the socket keeps it
	if h.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return nil, fmt.Errorf("open a packet socket: %w%s", err, remedy(err))
	}
	if err := unix.SetsockoptInt(h.socket, unix.SOL_SOCKET, unix.SO_ATTACH_BPF, p.FD()); err != nil {
		return nil, fmt.Errorf("attach the filter: %w", err)
	}
	if err := unix.SetsockoptInt(h.socket, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
		return nil, fmt.Errorf("leave out what the host sends: %w", err)
	}
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	if err := unix.Bind(h.socket, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}); err != nil {
		return nil, fmt.Errorf("bind to interface %d: %w", index, err)
	}
	return h, nil
}

func remedy(err error) string {
	if errors.Is(err, unix.EPERM) {
		return " (run as root, or with CAP_BPF and CAP_NET_RAW)"
	}
	return ""
}

func (h *heard) close() error {
	var errs []error
	if h.socket >= 0 {
		errs = append(errs, unix.Close(h.socket))
	}
	if h.memory != nil {
		errs = append(errs, unix.Munmap(h.memory))
	}
	if h.counts != nil {
		errs = append(errs, h.counts.Close())
	}
	h.socket, h.memory, h.words, h.counts = -1, nil, nil, nil
	return errors.Join(errs...)
}

// stamp is the timestamp of the peer's last packet.
func (h *heard) stamp() uint32 { return h.words[wordStamp].Load() }

// stamped reports whether there is one.
func (h *heard) stamped() bool {
	h.any = h.any || h.words[wordStamped].Load() != 0
	return h.any
}

// count is how many packets of the peer have arrived, modulo 2³².
func (h *heard) count() uint32 { return h.words[wordPackets].Load() }

// option is the beginning of the timestamp option as stacks write it: two of no operation, kind 8, length 10 (RFC 7323,
// appendix A).
const option = 0x0101080a

// hearing is the filter. It returns 0: no packet goes into the socket. Offsets are those of an Ethernet frame without
// tags: the kernel takes those out before.
func hearing(local, remote netip.AddrPort, words int) asm.Instructions {
	load := func(at int32, size asm.Size, want uint32) asm.Instructions {
		return asm.Instructions{asm.LoadAbs(at, size), asm.Mov.Imm32(asm.R7, int32(want)), asm.JNE.Reg(asm.R0, asm.R7, "done")}
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
	add := func(word int32) asm.Instructions {
		return asm.Instructions{asm.LoadMapValue(asm.R1, words, uint32(word)*4), asm.Mov.Imm(asm.R2, 1), asm.StoreXAdd(asm.R1, asm.R2, asm.Word)}
	}
	code = append(code, add(wordPackets)...)
	code = append(code, asm.LoadAbs(tcp+12, asm.Byte), asm.JLT.Imm(asm.R0, (tcpLen+stampsLen)/4<<4, "done"))
	code = append(code, load(tcp+tcpLen, asm.Word, option)...)
	code = append(code, asm.LoadAbs(tcp+tcpLen+4, asm.Word), asm.LoadMapValue(asm.R1, words, wordStamp*4), asm.StoreMem(asm.R1, 0, asm.R0, asm.Word))
	code = append(code, add(wordStamped)...)
	return append(code, asm.Mov.Imm(asm.R0, 0).WithSymbol("done"), asm.Return())
}
