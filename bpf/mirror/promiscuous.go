package mirror

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// listen makes the interface also receive packets for other hosts. The kernel ends this with the
// socket, also after a crash.
func (m *Mirror) listen() error {
	// With protocol zero the socket itself receives no packet.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket for promiscuous mode: %w", err)
	}
	m.undo.add(func() error { return unix.Close(fd) })
	wanted := &unix.PacketMreq{Ifindex: int32(m.index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, wanted); err != nil {
		return fmt.Errorf("set promiscuous mode: %w", err)
	}
	return nil
}
