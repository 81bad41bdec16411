package umem

import "fmt"

// PacketHeadroom is the room that the kernel keeps free before every received packet, in front of a
// shape's own headroom: XDP_PACKET_HEADROOM in include/uapi/linux/bpf.h.
const PacketHeadroom = 256

// Shape is how packets land in frames. It belongs to one registration with AF_XDP. Several shapes
// may be registered over the same region.
type Shape struct {
	Headroom    uint32 // bytes kept free beyond PacketHeadroom
	MultiBuffer bool   // packets longer than a frame continue in further frames
	Unaligned   bool   // sent packets may cross the borders of frames
}

// Offset returns the offset in its frame where a packet's first byte lands. It has no meaning for a
// shape that does not pass Check.
func (s Shape) Offset() uint32 { return PacketHeadroom + s.Headroom }

// Capacity returns how many bytes of a packet one frame of frameSize bytes holds.
func (s Shape) Capacity(frameSize uint32) uint32 {
	if frameSize < PacketHeadroom || s.Headroom > frameSize-PacketHeadroom {
		return 0
	}
	return frameSize - s.Offset()
}

// Check returns an error if the headroom leaves less than an Ethernet frame of the smallest MTU
// that IPv4 hosts must accept (RFC 791: 576) in frames of this size.
func (s Shape) Check(frameSize uint32) error {
	const least = 576 + 14
	if c := s.Capacity(frameSize); c < least {
		return fmt.Errorf("shape with headroom %d leaves %d bytes of a %d-byte frame for a packet, fewer than %d: lower the headroom or use larger frames",
			s.Headroom, c, frameSize, least)
	}
	return nil
}
