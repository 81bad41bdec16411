// Package netdev looks network interfaces up: by the name of one or any of its alternative names, in the network namespace of
// the calling thread. It says what their packets begin with, which the ARPHRD_ number of an interface tells.
package netdev

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/linktype"
)

// maxName is how many bytes a name may have: those of an alternative name (ALTIFNAMSIZ less the zero, linux/if.h).
const maxName = 127

// ErrNotFound says that there is no interface of that name.
var ErrNotFound = errors.New("there is no such interface in this network namespace (see: ip link)")

// Device is a network interface as it was when it was looked up.
type Device struct {
	Name  string // the one in front of the alternative names
	Index int
	MTU   int
	Encap string // the name of its ARPHRD_ number, as ip link shows it: ether, none, ipip
	Kind  string // what made it, as ip -d link shows it: veth, tun, wireguard; device for a card
	Link  linktype.Type
	Known bool // Link is one that flows take
}

// ValidName says what is wrong with a name, as dev_valid_name in the kernel (net/core/dev.c) has it.
func ValidName(name string) error {
	bad := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == '/' || r == ':' }
	switch {
	case name == "":
		return errors.New("an interface has a name")
	case len(name) > maxName:
		return fmt.Errorf("%q cannot be the name of a network interface: it has %d bytes, and an alternative name has %d at most", name, len(name), maxName)
	case name == "." || name == ".." || strings.ContainsFunc(name, bad):
		return fmt.Errorf("%q cannot be the name of a network interface", name)
	}
	return nil
}

// Find looks an interface up. The error matches [ErrNotFound] where there is none.
func Find(name string) (Device, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return Device{}, fmt.Errorf("look interface %s up: open netlink: %w", name, err)
	}
	defer h.Close()
	link, err := h.LinkByName(name)
	switch {
	case errors.As(err, new(netlink.LinkNotFoundError)), errors.Is(err, unix.ENODEV):
		return Device{}, fmt.Errorf("look interface %s up: %w", name, ErrNotFound)
	case err != nil:
		return Device{}, fmt.Errorf("look interface %s up: %w", name, err)
	}
	return Of(link), nil
}

// Of is the device of a link.
func Of(link netlink.Link) Device {
	a := link.Attrs()
	d := Device{Name: a.Name, Index: a.Index, MTU: a.MTU, Encap: a.EncapType, Kind: link.Type()}
	if d.Kind == "tuntap" { // netlink's word for both
		d.Kind = "tun"
	}
	if d.Encap == unnamedRawIP {
		d.Encap = "rawip"
	}
	d.Link, d.Known = linkOf(d.Encap)
	return d
}

// unnamedRawIP is ARPHRD_RAWIP, which netlink has no name for.
var unnamedRawIP = fmt.Sprintf("unknown%d", unix.ARPHRD_RAWIP)

// linkOf is what packets begin with where the XDP program sees them, by the name that netlink gives an ARPHRD_ number. A type
// is here only if that is the same on every kernel. In front of packets of gre and sit lies the header of the outer packet.
func linkOf(encap string) (linktype.Type, bool) {
	switch encap {
	case "ether", "loopback":
		return linktype.Ethernet, true
	case "none", "rawip", "ipip", "tunnel6":
		return linktype.RawIP, true
	}
	return 0, false
}

// Describe says what a device is, for errors: "tun0 (type none, tun)".
func (d Device) Describe() string { return fmt.Sprintf("%s (type %s, %s)", d.Name, d.Encap, d.Kind) }

// ErrLinkType says that the packets of an interface do not begin with what is wanted.
var ErrLinkType = errors.New("link type does not fit")

// NeedEthernet refuses a device whose packets do not begin with an Ethernet header; what says who wants them to.
func (d Device) NeedEthernet(what string) error {
	switch {
	case d.Known && d.Link == linktype.Ethernet:
		return nil
	case d.Known:
		return fmt.Errorf("%w: packets of %s have no Ethernet header, which %s needs (capture works there: unifiedd capture -i %s)", ErrLinkType, d.Describe(), what, d.Name)
	}
	return d.Unknown()
}

// Unknown is the error for a device whose packets begin with something that is not known.
func (d Device) Unknown() error {
	if d.Known {
		return nil
	}
	return fmt.Errorf("%w: packets of %s begin with neither an Ethernet nor an IP header, so neither filters nor captures of them are possible (use the interface below it)", ErrLinkType, d.Describe())
}

// Sends says what keeps packets from being sent by the device as they are. Of those without Ethernet headers only tun hands on what it is
// given: WireGuard and tunnels of the kernel ask for a protocol that comes with each packet, and AF_XDP gives none.
func (d Device) Sends() error {
	if d.Known && d.Link != linktype.Ethernet && d.Kind != "tun" {
		return fmt.Errorf("%w: packets of %s have no Ethernet header, and the kernel drops those that are sent to it without a protocol (send by the interface below it)", ErrLinkType, d.Describe())
	}
	return d.Unknown()
}
