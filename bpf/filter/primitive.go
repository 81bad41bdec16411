package filter

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// direction says which end of a packet a test looks at.
type direction uint8

const (
	either direction = iota
	source
	destination
)

var directionText = [...]string{either: "", source: "src ", destination: "dst "}

// subject is what a test looks at.
type subject uint8

const (
	subjectEther     subject = iota // ether proto number
	subjectProto                    // [family] proto number
	subjectNet                      // direction prefix, of any protocol that has addresses
	subjectPort                     // [number as protocol] direction low to high
	subjectVLAN                     // number, or any when negative
	subjectMAC                      // direction mac
	subjectMulticast                // [family]
)

// Ethertypes and protocols with names.
const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherRARP = 0x8035
	etherIPv6 = 0x86dd

	protoICMP   = 1
	protoIGMP   = 2
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
	protoSCTP   = 132
)

// anyNumber stands for "no number given".
const anyNumber = -1

// test is one primitive, with its abbreviations resolved. Which fields count
// depends on the subject.
type test struct {
	subject   subject
	family    int // an ethertype, or anyNumber
	number    int
	direction direction
	low, high uint16
	prefix    netip.Prefix
	mac       [6]byte
}

// String prints the test as [Parse] reads it.
func (t test) String() string {
	switch t.subject {
	case subjectEther:
		return etherText(t.number)
	case subjectProto:
		return t.protoText()
	case subjectNet:
		return t.netText()
	case subjectPort:
		return t.portText()
	case subjectVLAN:
		return vlanText(t.number)
	case subjectMAC:
		return "ether " + directionText[t.direction] + "host " + net.HardwareAddr(t.mac[:]).String()
	default:
		return familyText(t.family, "ether ") + "multicast"
	}
}

func etherText(number int) string {
	if name, ok := nameOf(etherNames, number); ok {
		return name
	}
	return fmt.Sprintf("ether proto 0x%04x", number)
}

// protoText prints a protocol, by the word that means exactly this test where
// there is one.
func (t test) protoText() string {
	for word, same := range protoWords {
		if same.family == t.family && same.number == t.number {
			return word
		}
	}
	return familyText(t.family, "") + "proto " + strconv.Itoa(t.number)
}

func familyText(family int, none string) string {
	if name, ok := nameOf(etherNames, family); ok {
		return name + " "
	}
	return none
}

func (t test) netText() string {
	if t.prefix.IsSingleIP() {
		return directionText[t.direction] + "host " + t.prefix.Addr().String()
	}
	return directionText[t.direction] + "net " + t.prefix.String()
}

func (t test) portText() string {
	text := ""
	if name, ok := nameOf(protoNames, t.number); ok {
		text = name + " "
	}
	text += directionText[t.direction]
	if t.low == t.high {
		return fmt.Sprintf("%sport %d", text, t.low)
	}
	return fmt.Sprintf("%sportrange %d-%d", text, t.low, t.high)
}

func vlanText(number int) string {
	if number == anyNumber {
		return "vlan"
	}
	return "vlan " + strconv.Itoa(number)
}
