package xdp

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// probe asks whether the kernel and the driver are done with a queue. It is a
// socket with a page of its own, made together with a port, while the thread is in
// the right network namespace. Binding a queue that is taken answers EBUSY before
// anything else (xp_assign_dev in net/xdp/xsk_buff_pool.c); any other answer means
// that the queue is free. The page has so little room in its frames that the
// bind itself does not come about.
type probe struct {
	fd   int
	page []byte
}

// The probe's frames: half a page with room for less than any packet.
const (
	probeChunk    = 2048
	probeHeadroom = 1024
)

func newProbe() (*probe, error) {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, socketError(err)
	}
	p := &probe{fd: fd}
	p.page, err = unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|unix.MAP_PRIVATE)
	if err == nil {
		err = registerUMEM(fd, p.page, probeChunk, probeHeadroom, 0)
	}
	for _, option := range []int{unix.XDP_RX_RING, unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING} {
		if err == nil {
			err = setInt(fd, option, unusedRing)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the probe of a queue: %w", err), p.close())
	}
	return p, nil
}

// wait returns when the queue is free, or an error after limit.
func (p *probe) wait(ifindex int, queue uint32, limit time.Duration) error {
	addr := &unix.SockaddrXDP{Flags: unix.XDP_ZEROCOPY, Ifindex: uint32(ifindex), QueueID: queue}
	err := retry(limit, unix.EBUSY, func() error { return unix.Bind(p.fd, addr) })
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("wait %v for the driver to let go: %w (its frames stay out of use; close again later)", limit, ErrQueueBusy)
	}
	return nil
}

// close gives the probe back; closing again does nothing.
func (p *probe) close() error {
	if p == nil || p.fd < 0 {
		return nil
	}
	err := unix.Close(p.fd)
	p.fd = -1
	if p.page != nil {
		err = errors.Join(err, unix.Munmap(p.page))
	}
	if err != nil {
		return fmt.Errorf("close the probe of a queue: %w", err)
	}
	return nil
}
