package wire

import "fmt"

// Malformed is the reason why a packet is invalid. It is small, so that a receiver counts in an
// array of Reasons, and calls String only where the counts are read.
type Malformed uint8

const (
	// WellFormed is that nothing was found.
	WellFormed Malformed = iota

	// Of the envelope.

	NotRoCE     // some other protocol, or another UDP port
	FrameShort  // the frame ends within the Ethernet, VLAN, IP or UDP header
	VLANDepth   // more than two VLAN tags
	IPVersion   // the IP header is not of the version that the ethertype says
	IPOptions   // IPv4 options
	IPExtension // IPv6 extension headers
	IPFragment  // a piece of a packet
	IPLength    // the IP length is beyond the frame's, or too short
	IPChecksum  // of IPv4's header
	IPAddress   // an IPv6 address that is an IPv4 one, mapped: it would pass for a peer's over IPv4
	UDPLength   // beyond the IP length, or without room for BTH and ICRC

	// ICRCWrong is that the packet changed on its way, or that it is no RoCE. Never returned, but
	// here to be counted with the others.
	ICRCWrong

	// Of the headers.

	HeaderShort      // the packet ends within its headers, padding or ICRC
	TransportVersion // the base transport header has another version than 0
	OpcodeUnknown
	PadWrong // padding that does not make the payload a multiple of four

	// Of the payload.

	PayloadUnexpected // of a packet that has none
	PayloadPartial    // a FIRST or MIDDLE without exactly the path MTU
	PayloadMissing    // a LAST without any
	PayloadLong       // more than the path MTU

	// Reasons is how many there are, WellFormed among them.
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

// String is a name fit for a metric's label: lower case and underscores.
func (m Malformed) String() string {
	if m < Reasons {
		return reasonNames[m]
	}
	return fmt.Sprintf("malformed_%d", uint8(m))
}
