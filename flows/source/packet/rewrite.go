package packet

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// native is the byte order of the kernel's headers.
var native = binary.NativeEndian

func networkOrder(v uint16) uint16 {
	return native.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

// Positions in the header of a block.
const (
	blockPackets = 12
	blockFirst   = 16
)

// packetAt is the kernel's description of one packet: struct tpacket3_hdr and the type in the
// sockaddr_ll behind it. It is read before the block of the packet in front is completed, which
// overwrites it.
type packetAt struct {
	at, next       uint32 // offset in the block; distance to the next packet, 0: the last one
	seconds, nanos uint32
	kept, length   uint32
	status         uint32
	mac            uint32 // where the packet begins, from at
	tag, tagType   uint32
	kind           uint8  // sll_pkttype
	start, end     uint32 // of its block's header and of the packet's bytes, once known
}

// ethernetTag is where a VLAN tag lies in an Ethernet frame: behind both addresses.
const (
	ethernetTag = 12
	tagLen      = 4
)

var errRing = errors.New("the kernel's ring of packets has an impossible header")

// rewriter makes records of the packets of a block, in place. It belongs to the worker's thread.
type rewriter struct {
	iface    uint32 // of packets with times of the system's clock; with times of the card it is one more
	ethernet bool
	snap     uint32 // most bytes of a packet to keep
	align    uint32 // of the end of the last record
	moved    uint64 // bytes of packets that were moved
	beyond   uint64 // packets left out because they are beyond the limit
	bytes    uint64 // of packets in all blocks
	stamped  uint64 // packets with a time of the card's clock
}

// read reads the description of the packet at an offset.
func (p *packetAt) read(b []byte, at uint32) error {
	if uint64(at)+packetHeader+address > uint64(len(b)) {
		return fmt.Errorf("%w: a packet at %d in a block of %d", errRing, at, len(b))
	}
	h := b[at:][: packetHeader+address : packetHeader+address]
	p.at, p.next = at, native.Uint32(h[0:])
	p.seconds, p.nanos = native.Uint32(h[4:]), native.Uint32(h[8:])
	p.kept, p.length, p.status = native.Uint32(h[12:]), native.Uint32(h[16:]), native.Uint32(h[20:])
	p.mac = uint32(native.Uint16(h[24:]))
	p.tag, p.tagType = native.Uint32(h[32:]), uint32(native.Uint16(h[36:]))
	p.kind = h[packetHeader+10]
	data := uint64(at) + uint64(p.mac)
	if p.mac < packetHeader+address || data+uint64(p.kept) > uint64(len(b)) {
		return fmt.Errorf("%w: %d bytes at %d in a block of %d", errRing, p.kept, data, len(b))
	}
	p.start, p.end = uint32(data)-pcapng.PacketHeaderLen, uint32(data)+p.kept
	return nil
}

// time returns when the packet arrived, in nanoseconds since 1970.
func (p *packetAt) time() uint64 { return uint64(p.seconds)*1e9 + uint64(p.nanos) }

// card reports whether that is the time of the card's clock.
func (p *packetAt) card() bool { return p.status&unix.TP_STATUS_TS_RAW_HARDWARE != 0 }

// Bits of a packet's flags (epb_flags, draft-ietf-opsawg-pcapng). The direction is in bits 0 and 1, how the
// packet was received in bits 2 to 4.
const (
	checksumNotReady = 1 << 9  // the card or nobody computes it, as in packets that the host sends
	checksumValid    = 1 << 10 // the card or the kernel has verified it
	segmentsFollow   = 1 << 11 // the packet is a TCP segment that is sent, or was received, in several pieces
)

// directions are the flags of each sll_pkttype: for this host, broadcast, multicast, for another host, and
// sent.
var directions = [8]pcapng.Direction{
	unix.PACKET_HOST: pcapng.Inbound | 1<<2, unix.PACKET_BROADCAST: pcapng.Inbound | 3<<2, unix.PACKET_MULTICAST: pcapng.Inbound | 2<<2,
	unix.PACKET_OTHERHOST: pcapng.Inbound | 4<<2, unix.PACKET_OUTGOING: pcapng.Outbound,
}

// flags returns the flags of a packet.
func (p *packetAt) flags() pcapng.Direction {
	f := directions[p.kind&7]
	if p.status&(unix.TP_STATUS_CSUMNOTREADY|unix.TP_STATUS_CSUM_VALID|unix.TP_STATUS_GSO_TCP) == 0 {
		return f
	}
	if p.status&unix.TP_STATUS_CSUMNOTREADY != 0 {
		f |= checksumNotReady
	}
	if p.status&unix.TP_STATUS_CSUM_VALID != 0 {
		f |= checksumValid
	}
	if p.status&unix.TP_STATUS_GSO_TCP != 0 {
		f |= segmentsFollow
	}
	return f
}

// tailLen is the least number of bytes behind a packet and its padding: its flags and the length of
// its block.
const tailLen = pcapng.DirectionLen + 4

// rewrite makes records of at most most packets of a block, and describes the block in about.
func (r *rewriter) rewrite(b []byte, most uint64, about *layout.Block) error {
	*about = layout.Block{}
	n, at := native.Uint32(b[blockPackets:]), native.Uint32(b[blockFirst:])
	if uint64(n) > most {
		r.beyond += uint64(n) - most
		n = uint32(most)
	}
	if n == 0 {
		return nil
	}
	var before, p packetAt
	least := uint32(pcapng.MinMarkLen)
	for i := range n {
		if err := p.read(b, at); err != nil {
			return err
		}
		r.arrange(b, &p, i == n-1)
		if p.start < least || p.start > uint32(len(b)) {
			return fmt.Errorf("%w: a packet at %d, over the one before", errRing, p.start)
		}
		if i == 0 {
			about.Head = p.start
		} else {
			r.finish(b, &before, p.start)
		}
		r.begin(b, &p, about)
		at, before, least = at+p.next, p, roundUp(p.end, 4)+tailLen
	}
	if least > uint32(len(b)) || about.Head > layout.MaxRingHead {
		return fmt.Errorf("%w: packets from %d to %d in a block of %d", errRing, about.Head, before.end, len(b))
	}
	about.Packets, about.Length = n, min(roundUp(least, r.align), uint32(len(b)))
	r.finish(b, &before, about.Length)
	return nil
}

// arrange puts the packet's tag back, truncates and aligns it. Behind the last packet of a block the
// kernel leaves eight bytes at least. The end of its record may need more, so the packet moves.
func (r *rewriter) arrange(b []byte, p *packetAt, last bool) {
	r.bytes += uint64(p.length)
	if p.status&unix.TP_STATUS_VLAN_VALID != 0 && r.ethernet && p.kept >= ethernetTag {
		r.putTag(b, p)
	}
	if kept := p.end - p.start - pcapng.PacketHeaderLen; kept > r.snap {
		p.end -= kept - r.snap
	}
	if off := p.start & 3; off != 0 {
		r.move(b, p, off)
	}
	if end := roundUp(p.end, 4) + tailLen; last && end > uint32(len(b)) {
		r.move(b, p, roundUp(end-uint32(len(b)), 4))
	}
}

// begin writes the header of the packet's block but for the length.
func (r *rewriter) begin(b []byte, p *packetAt, about *layout.Block) {
	kept := p.end - p.start - pcapng.PacketHeaderLen
	if kept < p.length {
		about.Cut++
		about.Omitted += uint64(p.length - kept)
	}
	iface, ns := r.iface, p.time()
	if p.card() {
		iface++
		r.stamped++
	} else {
		if about.Oldest == 0 {
			about.Oldest = ns
		}
		about.Newest = max(about.Newest, ns)
	}
	about.Bytes += uint64(kept)
	pcapng.PutPacketHeader(b[p.start:], iface, ns, kept, p.length, 0)
}

// putTag puts the VLAN tag back that the kernel has taken out of a packet.
func (r *rewriter) putTag(b []byte, p *packetAt) {
	tagType := uint32(unix.ETH_P_8021Q)
	if p.status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
		tagType = p.tagType
	}
	data := p.start + pcapng.PacketHeaderLen
	copy(b[data-tagLen:], b[data:data+ethernetTag])
	binary.BigEndian.PutUint32(b[data-tagLen+ethernetTag:], tagType<<16|p.tag&0xffff)
	p.start -= tagLen
	p.length += tagLen
	r.moved += ethernetTag
}

// move moves a packet towards the start of the block.
func (r *rewriter) move(b []byte, p *packetAt, by uint32) {
	from := p.start + pcapng.PacketHeaderLen
	copy(b[from-by:], b[from:p.end])
	r.moved += uint64(p.end - from)
	p.start, p.end = p.start-by, p.end-by
}

// finish writes everything behind the packet up to the next record, and the length of its block.
func (r *rewriter) finish(b []byte, p *packetAt, next uint32) {
	length := next - p.start
	binary.LittleEndian.PutUint32(b[p.start+4:], length)
	pcapng.PutDirectedTail(b[p.end:next:next], p.end-p.start-pcapng.PacketHeaderLen, length, p.flags())
}

func roundUp(n, align uint32) uint32 { return (n + align - 1) &^ (align - 1) }
