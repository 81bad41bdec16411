package umem

import "fmt"

// PacketHeadroom is what the kernel keeps free in front of every received
// packet, before the headroom a shape asks for: XDP_PACKET_HEADROOM in
// include/uapi/linux/bpf.h.
const PacketHeadroom = 256

// Shape is how packets land in frames. It belongs to one registration with
// AF_XDP; several shapes may be registered over the same region side by side.
type Shape struct {
	Headroom    uint32 // bytes kept free beyond PacketHeadroom
	MultiBuffer bool   // packets longer than a frame go on in further frames
	Unaligned   bool   // packets that are sent may lie across the bounds of frames
}

// Offset is where in its frame a packet's first byte lands. It means nothing for
// a shape that does not pass Check.
func (s Shape) Offset() uint32 { return PacketHeadroom + s.Headroom }

// Capacity is how many bytes of a packet one frame of frameSize bytes holds.
func (s Shape) Capacity(frameSize uint32) uint32 {
	if frameSize < PacketHeadroom || s.Headroom > frameSize-PacketHeadroom {
		return 0
	}
	return frameSize - s.Offset()
}

// Check reports a headroom that leaves less than an Ethernet frame of the
// smallest MTU IPv4 hosts must accept (RFC 791: 576) in frames of this size.
func (s Shape) Check(frameSize uint32) error {
	const least = 576 + 14
	if c := s.Capacity(frameSize); c < least {
		return fmt.Errorf("shape with headroom %d leaves %d bytes of a %d-byte frame for a packet, fewer than %d: lower the headroom or use larger frames",
			s.Headroom, c, frameSize, least)
	}
	return nil
}
