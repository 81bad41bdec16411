package wire

import "fmt"

// Malformed is the reason why a packet is invalid. It is a small number: a receiver counts in an
// array of Reasons, and calls String only when the counts are read.
type Malformed uint8

const (
	// WellFormed means that no fault was found.
	WellFormed Malformed = iota

	// Faults of the envelope.

	NotRoCE     // some other protocol, or another UDP port
	FrameShort  // the frame ends within the Ethernet, VLAN, IP or UDP header
	VLANDepth   // more than two VLAN tags
	IPVersion   // the version of the IP header differs from the ethertype
	IPOptions   // IPv4 options
	IPExtension // IPv6 extension headers
	IPFragment  // a piece of a packet
	IPLength    // the IP length is beyond the frame's end, or too short
	IPChecksum  // of IPv4's header
	IPAddress   // an IPv6 address that is a mapped IPv4 address: it would be taken for a peer's over IPv4
	UDPLength   // beyond the IP length, or without room for BTH and ICRC

	// ICRCWrong means that the packet changed on its way, or is not RoCE. Nothing here returns
	// it. It exists so that a receiver can count it with the others.
	ICRCWrong

	// Faults of the headers.

	HeaderShort      // the packet ends within its headers, padding or ICRC
	TransportVersion // the version of the base transport header is not 0
	OpcodeUnknown
	PadWrong // padding that does not make the payload a multiple of four

	// Faults of the payload.

	PayloadUnexpected // for a packet that has none
	PayloadPartial    // a FIRST or MIDDLE without exactly the path MTU
	PayloadMissing    // a LAST without payload
	PayloadLong       // more than the path MTU

	// Reasons is the number of reasons, including WellFormed.
	Reasons
)

var reasonNames = [Reasons]string{
	WellFormed: "well_formed",
	NotRoCE:    "not_roce", FrameShort: "frame_short", VLANDepth: "vlan_depth", IPVersion: "ip_version", IPOptions: "ip_options",
	IPExtension: "ip_extension", IPFragment: "ip_fragment", IPLength: "ip_length", IPChecksum: "ip_checksum", IPAddress: "ip_address", UDPLength: "udp_length",
	ICRCWrong:   "icrc",
	HeaderShort: "header_short", TransportVersion: "transport_version", OpcodeUnknown: "opcode_unknown", PadWrong: "pad",
	PayloadUnexpected: "payload_unexpected", PayloadPartial: "payload_partial", PayloadMissing: "payload_missing", PayloadLong: "payload_long",
}

// String returns a name that a metric's label can use: lower case and underscores.
func (m Malformed) String() string {
	if m < Reasons {
		return reasonNames[m]
	}
	return fmt.Sprintf("malformed_%d", uint8(m))
}

// PayloadLen returns the length of a packet's payload in bytes. total is the length of its
// transport part, from the base transport header through the ICRC (Envelope.Length). The payload
// begins Opcode.HeaderBytes after the start of the base transport header. The reasons are
// HeaderShort and PadWrong; the length is then 0.
func (h *Header) PayloadLen(total int) (int, Malformed) {
	n := total - h.Opcode.HeaderBytes() - int(h.Pad) - ICRCBytes
	switch {
	case n < 0:
		return 0, HeaderShort
	case h.Pad != Pad(n):
		return 0, PadWrong
	}
	return n, WellFormed
}

// Pad returns how many bytes of zeros follow a payload of n bytes.
func Pad(n int) uint8 { return uint8(-n & padMask) }

// CheckPayload reports whether a packet may have a payload of n bytes on a path with that MTU in
// bytes. It must be 0 for an opcode without payload, exactly the MTU for a packet that others of the
// message follow, and at least one byte for the last of several. It is never more than the MTU. IBTA
// specification, volume 1, 9.2 and 9.4; a CNP is the same on every path.
func CheckPayload(o Opcode, n, mtu int) Malformed {
	t := &table[o]
	switch {
	case t.parts&payload == 0:
		return reasonIf(n != 0, PayloadUnexpected)
	case t.kind == Congestion:
		return reasonIf(n != CNPBytes, PayloadPartial)
	case t.parts&ends == 0:
		return reasonIf(n != mtu, PayloadPartial)
	case n > mtu:
		return PayloadLong
	}
	return reasonIf(n == 0 && t.parts&starts == 0, PayloadMissing)
}

func reasonIf(wrong bool, m Malformed) Malformed {
	if wrong {
		return m
	}
	return WellFormed
}
