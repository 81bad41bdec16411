package packet

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/linktype"
)

// Sizes of the kernel's structures, in bytes (include/uapi/linux/if_packet.h).
const (
	blockHeader  = 48 // struct tpacket_block_desc with tpacket_hdr_v1
	packetHeader = 48 // struct tpacket3_hdr
	address      = 20 // struct sockaddr_ll, directly behind it
	private      = 16 // bytes that a block has for us in front of its first packet
	firstPacket  = blockHeader + private
)

// socketConfig describes a socket.
type socketConfig struct {
	name        string // of the interface
	index       int
	link        linktype.Type
	blocks      int
	block       uint64 // bytes
	retire      uint32 // milliseconds after which the kernel ends a block that is not full
	promiscuous bool
	inboundOnly bool
	filter      []unix.SockFilter
}

// socket is a packet socket with its ring. Until bind it receives nothing.
type socket struct {
	socketConfig
	fd     int
	events int // an epoll that reports each new block once
	clock  cardClock
	ring   []byte

	mu      sync.Mutex // held while fd is used or closed, after open
	packets uint64     // that passed the filter, and found room or not
	dropped uint64     // of those, packets that found no room
	freezes uint64     // times that the ring was full
}

// open opens a socket and its ring. Any thread may call it in the namespace of the interface.
func open(c socketConfig) (s *socket, err error) {
	s = &socket{socketConfig: c, fd: -1, events: -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return s, fmt.Errorf("open a packet socket: %w%s", err, rightsHint(err))
	}
	if err = s.setOptions(); err != nil {
		return s, err
	}
	if err = s.setFilter(c.filter); err != nil {
		return s, err
	}
	if err = s.mapRing(); err != nil {
		return s, err
	}
	return s, s.watch()
}

// rightsHint returns the remedy if the process may not open packet sockets.
func rightsHint(err error) string {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return " (grant CAP_NET_RAW)"
	}
	return ""
}

// reserve returns the bytes to reserve in front of a packet, so that its block's header of 28 bytes
// begins at a multiple of four. The kernel puts the network header at a multiple of sixteen behind
// the reserve (tpacket_rcv in net/packet/af_packet.c).
func (c *socketConfig) reserve() int {
	if c.link == linktype.RawIP {
		return 0
	}
	return 2
}

func (s *socket) setOptions() error {
	for _, o := range []struct {
		what        string
		name, value int
	}{
		{"version of its ring", unix.PACKET_VERSION, unix.TPACKET_V3},
		{"bytes to reserve before a packet", unix.PACKET_RESERVE, s.reserve()},
		{"directions", unix.PACKET_IGNORE_OUTGOING, btoi(s.inboundOnly)},
	} {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_PACKET, o.name, o.value); err != nil {
			return fmt.Errorf("set the %s of the packet socket for %s: %w", o.what, s.name, err)
		}
	}
	// The kernel then takes a packet's time when it arrives, once for all sockets, and not when it copies the
	// packet to this one.
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return fmt.Errorf("have times of arrival for %s: %w", s.name, err)
	}
	return nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// setFilter replaces the filter. The kernel decides on each packet by the old one or the new one. Any
// goroutine may call it.
func (s *socket) setFilter(ins []unix.SockFilter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return fmt.Errorf("set the filter of the packet socket for %s: %w", s.name, os.ErrClosed)
	}
	err := unix.SetsockoptSockFprog(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(ins)), Filter: &ins[0]})
	if errors.Is(err, unix.ENOMEM) {
		return fmt.Errorf("set the filter of the packet socket for %s: %d instructions: %w (shorten the filter, or raise net.core.optmem_max)", s.name, len(ins), err)
	}
	if err != nil {
		return fmt.Errorf("set the filter of the packet socket for %s: %w", s.name, err)
	}
	return nil
}

// rejectAll is a filter that accepts nothing.
var rejectAll = []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}

// mapRing makes the ring and maps it.
func (s *socket) mapRing() (err error) {
	page := uint64(os.Getpagesize())
	if s.block%page != 0 || bits.OnesCount64(s.block) != 1 {
		return fmt.Errorf("ring for %s: blocks of %d bytes are not pages of %d", s.name, s.block, page)
	}
	frame := uint32(1 << 11) // only its number must fit: packets have any length in blocks
	req := unix.TpacketReq3{
		Block_size: uint32(s.block), Block_nr: uint32(s.blocks), Frame_size: frame, Frame_nr: uint32(s.block) / frame * uint32(s.blocks),
		Retire_blk_tov: s.retire, Sizeof_priv: private,
	}
	size := uint64(s.blocks) * s.block
	if err := unix.SetsockoptTpacketReq3(s.fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &req); err != nil {
		return fmt.Errorf("make a ring of %d MiB for %s: %w (lower from.buffer, --buffer-size, or free memory)", size>>20, s.name, err)
	}
	if s.ring, err = unix.Mmap(s.fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("map the ring of %d MiB for %s: %w", size>>20, s.name, err)
	}
	if err := unix.Madvise(s.ring, unix.MADV_DONTFORK); err != nil {
		return fmt.Errorf("keep the ring for %s from child processes: %w", s.name, err)
	}
	touch(s.ring, int(page))
	return nil
}

// touch writes to every page of the ring, all of which are zero in their last byte. The first write to a
// page costs about 10 µs, more than a thousand packets do later.
func touch(ring []byte, page int) {
	for at := page - 1; at < len(ring); at += page {
		ring[at] = 0
	}
}

// watch makes the epoll. It is edge-triggered, because the socket stays readable until the block
// before the kernel's is free again, which may be on its way to the disk.
func (s *socket) watch() (err error) {
	if s.events, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("watch the packet socket for %s: %w", s.name, err)
	}
	e := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(s.fd)}
	if err := unix.EpollCtl(s.events, unix.EPOLL_CTL_ADD, s.fd, &e); err != nil {
		return fmt.Errorf("watch the packet socket for %s: %w", s.name, err)
	}
	return nil
}

// bind makes packets of the interface enter the ring.
func (s *socket) bind() error {
	if s.promiscuous {
		m := unix.PacketMreq{Ifindex: int32(s.index), Type: unix.PACKET_MR_PROMISC}
		if err := unix.SetsockoptPacketMreq(s.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
			return fmt.Errorf("have %s receive packets for other hosts: %w", s.name, err)
		}
	}
	err := unix.Bind(s.fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL), Ifindex: s.index})
	if err != nil && !errors.Is(err, unix.ENETDOWN) { // the kernel then delivers packets once the interface is up
		return fmt.Errorf("bind the packet socket to %s: %w", s.name, err)
	}
	return nil
}

// bindShared is bind for a socket of a group that divides the packets by connection: both directions of a
// connection go to the same socket. It joins the group with a number, or founds one. Between bind and joining the
// socket would get packets that other sockets of the group get, too, so it takes none until it has joined.
func (s *socket) bindShared(id uint16, exists bool) (uint16, error) {
	if err := s.setFilter(rejectAll); err != nil {
		return 0, err
	}
	if err := s.bind(); err != nil {
		return 0, err
	}
	how := unix.PACKET_FANOUT_HASH
	if s.inboundOnly {
		how |= ignoreOutgoing
	}
	if !exists {
		id, how = 0, how|unix.PACKET_FANOUT_FLAG_UNIQUEID
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_FANOUT, int(int32(uint32(how)<<16|uint32(id)))); err != nil {
		return 0, fmt.Errorf("divide packets of %s: %w (kernels before 6.12 need the interface up for this: ip link set %[1]s up)", s.name, err)
	}
	got, err := unix.GetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_FANOUT)
	if err != nil {
		return 0, fmt.Errorf("divide packets of %s: read the group's number: %w", s.name, err)
	}
	return uint16(got), s.setFilter(s.filter)
}

// ignoreOutgoing is PACKET_FANOUT_FLAG_IGNORE_OUTGOING.
const ignoreOutgoing = 0x4000

// statistics returns the counters since open, and after close those of then. Any goroutine may call it.
func (s *socket) statistics() (packets, dropped, freezes uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count()
}

// count is statistics for a caller that holds mu.
func (s *socket) count() (packets, dropped, freezes uint64, err error) {
	if s.fd < 0 {
		return s.packets, s.dropped, s.freezes, nil
	}
	got, err := unix.GetsockoptTpacketStatsV3(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS) // also resets them
	if err != nil {
		return s.packets, s.dropped, s.freezes, fmt.Errorf("read the counters of the packet socket for %s: %w", s.name, err)
	}
	s.packets += uint64(got.Packets)
	s.dropped += uint64(got.Drops)
	s.freezes += uint64(got.Freeze_q_cnt)
	return s.packets, s.dropped, s.freezes, nil
}

// close releases everything. No block may be in use.
func (s *socket) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	_, _, _, _ = s.count() // for a status that is read later
	if s.ring != nil {
		errs = append(errs, unix.Munmap(s.ring))
	}
	for _, fd := range []int{s.events, s.fd} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	s.ring, s.events, s.fd = nil, -1, -1
	return errors.Join(errs...)
}
