// Package linktype names the link layers that packets of an interface or a capture file begin with, by their LINKTYPE_ numbers.
package linktype

import "fmt"

// Type is a LINKTYPE_ number of the registry that tcpdump.org keeps.
type Type uint16

// Types that flows and filters know.
const (
	Ethernet Type = 1
	RawIP    Type = 101 // begins with the header of IPv4 or IPv6
)

// Like returns the type itself, or raw IP for the other types of packets that begin with an IP header: those
// for one IP version, and the numbers that DLT_RAW has on some systems.
func (t Type) Like() Type {
	switch t {
	case 12, 14, 228, 229:
		return RawIP
	}
	return t
}

// names are tcpdump's names for the most common types of captures.
var names = map[Type]string{
	0: "NULL", Ethernet: "EN10MB", 9: "PPP", 10: "FDDI", 50: "PPP_SERIAL", 51: "PPP_ETHER", RawIP: "RAW", 104: "C_HDLC",
	105: "IEEE802_11", 107: "FRELAY", 108: "LOOP", 113: "LINUX_SLL", 117: "PFLOG", 119: "IEEE802_11_PRISM",
	127: "IEEE802_11_RADIO", 147: "USER0", 148: "USER1", 192: "PPI", 195: "IEEE802_15_4", 203: "LAPD", 220: "USB_LINUX_MMAPPED", 227: "CAN_SOCKETCAN",
	228: "IPV4", 229: "IPV6", 239: "NFLOG", 247: "INFINIBAND", 252: "WIRESHARK_UPPER_PDU", 253: "NETLINK", 276: "LINUX_SLL2",
}

// String is tcpdump's name and the number, such as "RAW (101)".
func (t Type) String() string {
	if name, ok := names[t]; ok {
		return fmt.Sprintf("%s (%d)", name, uint16(t))
	}
	return fmt.Sprintf("number %d", uint16(t))
}
