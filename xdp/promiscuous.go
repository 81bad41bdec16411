package xdp

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// listen has the card hand over also packets that are not for the host: those for
// other addresses and, since most cards filter those too, of other VLANs. The kernel
// counts who wants that, and forgets us with the socket, also after a crash
// (packet_mc_add in net/packet/af_packet.c).
func (d *device) listen() (err error) {
	// Of protocol zero the socket receives no packet itself.
	if d.promiscuous, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open a socket for promiscuous mode: %w", err)
	}
	wanted := &unix.PacketMreq{Ifindex: int32(d.index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(d.promiscuous, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, wanted); err != nil {
		return fmt.Errorf("set promiscuous mode: %w", err)
	}
	return nil
}
