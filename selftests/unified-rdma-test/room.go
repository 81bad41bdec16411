package main

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/align"
	"github.com/unifiedd/unifiedd/rdma/roce/cm"
	"github.com/unifiedd/unifiedd/umem"
)

// room is the memory that a test needs.
type room struct {
	extents int    // for messages
	size    uint64 // of each, in bytes, at least
	control uint64 // bytes for the rings of a disk's queue
}

// How much memory the messages of one direction get, unless one message is larger. A bandwidth test uses as
// much as the programs of perftest. Larger areas cost more, because they do not fit the caches.
const (
	areaMost      = 16 << 20
	areaBandwidth = 4096
)

// room returns the memory that a job needs, without the disk's queue.
func (j *job) room() room {
	if j.Test == storageTest { // half for received messages, half for sent ones
		return room{extents: 2 * j.Depth, size: j.Size}
	}
	return room{extents: 2, size: j.area()}
}

// slotting returns the number of message slots in each direction, and the bytes from one to the next.
func (j *job) slotting() (slots int, stride uint64) {
	stride = (j.front() + max(j.Size, 8) + 63) &^ 63
	most := uint64(areaMost)
	if j.Test == bandwidthTest {
		most = areaBandwidth
	}
	return int(min(max(most/stride, 1), uint64(j.Depth))), stride
}

// area returns the memory for the messages of one direction.
func (j *job) area() uint64 {
	slots, stride := j.slotting()
	return uint64(slots) * stride
}

// openRegion opens a region of that size. One thread takes frames from it.
func (s *session) openRegion(m room) (err error) {
	c := umem.Config{ExtentSize: max(align.PowerOfTwo(m.size), 4096), Extents: uint64(m.extents), Control: m.control}
	frames, err := s.deviceFrames()
	if err != nil {
		return err
	}
	forFrames := (max(frames*frameSize, 1) + c.ExtentSize - 1) / c.ExtentSize // in units of extents, because extents begin at multiples of their size
	c.Size = max(c.ExtentSize*(uint64(m.extents)+forFrames), 2<<20)
	if s.region, err = s.cleanup.OpenRegion(c, s.options.reserve, "-reserve lets this program reserve huge pages"); err != nil {
		return err
	}
	s.book, s.worker, err = s.cleanup.OpenHolder(s.region, "unified-rdma-test")
	return err
}

// frameSize is umem's default.
const frameSize = 4096

// deviceFrames returns how many frames of the region the device takes for itself.
func (s *session) deviceFrames() (uint64, error) {
	iface, is := s.options.soft()
	if !is {
		return 0, nil
	}
	link, err := netlink.LinkByName(iface)
	if err != nil {
		return 0, fmt.Errorf("count the queues of %s: %w", iface, err)
	}
	all := s.softConfig().Frames(max(1, link.Attrs().NumRxQueues)) // the largest possible number
	return uint64(all) + uint64(cm.Frames(frameSize)), nil
}
