package xdp

import (
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"
)

// Some drivers must never look for a frame in vain. Where that happens at the end of its
// ring, igb (Linux 6.14 and later, igb_alloc_rx_buffers_zc) leaves the length of the
// descriptor it comes to as it was, takes it and all behind it for packets that have just
// arrived, and so hands over frames which are somebody else's by then.
//
// With such a driver a port keeps a reserve with the kernel: as many frames as the card's
// ring and the rx ring hold. What is not taken from the rx ring in time is then lost
// because that is full, never for want of frames. The driver is told not to wait for
// wake-ups: else it keeps the frame of a packet that did not fit, which the kernel has
// freed as well (xsk_rcv_zc in net/xdp/xsk.c).
//
// Nor does igb receive packets longer than what is left of a frame in whole KiB, the unit
// of its registers (SRRCTL.BSIZEPACKET): it hands over their parts as packets.

// suit changes what a way of binding needs otherwise on this device, or says why it is
// not for it.
func (c *Config) suit(a attempt, d *device) error {
	if !a.zeroCopy || !c.Direction.receives() || d.driver(c.Interface) != "igb" {
		return nil
	}
	if room := int(c.frameRoom() &^ 1023); d.mtu+linkOverhead > room {
		return fmt.Errorf("the card counts its room in KiB, and in frames of %d bytes has %d of them: not enough for packets of MTU %d",
			c.region().FrameSize(), room, d.mtu)
	}
	c.reserve = c.RingSize + d.cardRing(c.Interface)
	c.FillSize = 1 << bits.Len32(c.reserve+margin-1)
	c.AlwaysWake = true
	return nil
}

// margin is how many frames a port takes beyond its reserve. So many it gives before it
// must be supplied again.
const margin = 256

// driver is the driver's name, empty where it does not say.
func (d *device) driver(name string) string {
	info, err := unix.IoctlGetEthtoolDrvinfo(d.ctl, name)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(info.Driver[:])
}

// cardRing is how many descriptors each of the card's receive rings has.
func (d *device) cardRing(name string) uint32 {
	n, err := ringEntries(d.ctl, name)
	if err != nil {
		return mostEntries
	}
	return min(n, mostEntries)
}

// mostEntries is the most that rings of igb have (IGB_MAX_RXD).
const mostEntries = 4096

// spare is how many frames Recv may give. Once a port has had its reserve, it keeps it
// until no more packets come.
func (p *Port) spare() uint32 {
	if p.filling != nil && (!p.reserved || p.iface.stopped.Load()) {
		return p.supplied // no more than it has put in
	}
	if !p.reserved || p.iface.stopped.Load() {
		return maxBatch
	}
	return p.supplied - min(p.reserve, p.supplied)
}

// sendsAlone looks whether sockets that only send, and have no program beside them, are
// served: drivers of Intel's cards have zero copy only with one, and say so at the first
// wake-up (igb_xsk_wakeup, i40e_xsk_wakeup, ixgbe_xsk_wakeup).
func (c *Config) sendsAlone(a attempt, sockets []*socket) error {
	if !a.zeroCopy || c.Direction.receives() {
		return nil
	}
	_, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(sockets[0].fd), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	if errno == unix.EINVAL || errno == unix.ENXIO {
		return fmt.Errorf("the driver sends so only beside an XDP program: %w", errno)
	}
	return nil
}
