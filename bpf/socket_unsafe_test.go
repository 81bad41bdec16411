package bpf

import (
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

const (
	chunkSize = 4096
	ringSize  = 64
)

// xskSocket is a minimal AF_XDP socket that receives: the kernel gets ringSize chunks once.
type xskSocket struct {
	fd   int
	umem []byte
	rx   []byte
	at   unix.XDPMmapOffsets
}

// newXSK binds a socket to a queue of the interface at the end.
func newXSK(t *testing.T, end *testenv.End, queue uint32) *xskSocket {
	t.Helper()
	s := &xskSocket{umem: mustMmap(t, -1, 0, ringSize*chunkSize, unix.MAP_ANONYMOUS|unix.MAP_PRIVATE)}
	end.Do(t, func() {
		var err error
		if s.fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			t.Fatalf("open an AF_XDP socket: %v", err)
		}
	})
	t.Cleanup(func() { unix.Close(s.fd) })
	reg := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&s.umem[0]))), Len: uint64(len(s.umem)), Size: chunkSize}
	s.option(t, unix.SYS_SETSOCKOPT, unix.XDP_UMEM_REG, unsafe.Pointer(&reg), unsafe.Sizeof(reg))
	for _, ring := range []int{unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_RX_RING} {
		testenv.Mustf(t, unix.SetsockoptInt(s.fd, unix.SOL_XDP, ring, ringSize), "make ring %d", ring)
	}
	size := uint32(unsafe.Sizeof(s.at))
	s.option(t, unix.SYS_GETSOCKOPT, unix.XDP_MMAP_OFFSETS, unsafe.Pointer(&s.at), uintptr(unsafe.Pointer(&size)))
	s.rx = mustMmap(t, s.fd, unix.XDP_PGOFF_RX_RING, int(s.at.Rx.Desc)+16*ringSize, unix.MAP_SHARED)
	fill := mustMmap(t, s.fd, unix.XDP_UMEM_PGOFF_FILL_RING, int(s.at.Fr.Desc)+8*ringSize, unix.MAP_SHARED)
	for i := range ringSize {
		*(*uint64)(unsafe.Pointer(&fill[int(s.at.Fr.Desc)+8*i])) = uint64(i * chunkSize)
	}
	(*atomic.Uint32)(unsafe.Pointer(&fill[s.at.Fr.Producer])).Store(ringSize)
	addr := &unix.SockaddrXDP{Flags: unix.XDP_COPY, Ifindex: uint32(end.Index), QueueID: queue}
	testenv.Mustf(t, unix.Bind(s.fd, addr), "bind an AF_XDP socket to %s queue %d", end.Ifname, queue)
	return s
}

func mustMmap(t *testing.T, fd int, offset int64, size, flags int) []byte {
	t.Helper()
	m, err := unix.Mmap(fd, offset, size, unix.PROT_READ|unix.PROT_WRITE, flags)
	testenv.Mustf(t, err, "map %d bytes at %#x", size, offset)
	t.Cleanup(func() { unix.Munmap(m) })
	return m
}

// option sets or gets a socket option that is a structure.
func (s *xskSocket) option(t *testing.T, call uintptr, name int, value unsafe.Pointer, size uintptr) {
	t.Helper()
	if _, _, errno := unix.Syscall6(call, uintptr(s.fd), unix.SOL_XDP, uintptr(name), uintptr(value), size, 0); errno != 0 {
		t.Fatalf("socket option %d: %v", name, errno)
	}
}

// received returns the packets in the receive ring, each with the eight bytes
// in front of it.
func (s *xskSocket) received() (packets [][]byte, stamps []uint64) {
	n := (*atomic.Uint32)(unsafe.Pointer(&s.rx[s.at.Rx.Producer])).Load()
	for i := range int(n) {
		desc := (*unix.XDPDesc)(unsafe.Pointer(&s.rx[int(s.at.Rx.Desc)+16*i]))
		packets = append(packets, s.umem[desc.Addr:desc.Addr+uint64(desc.Len)])
		stamps = append(stamps, *(*uint64)(unsafe.Pointer(&s.umem[desc.Addr-8])))
	}
	return packets, stamps
}
