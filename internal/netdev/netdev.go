// Package netdev looks up network interfaces by their name or any alternative name, in the network namespace
// of the calling thread. It also returns the link type of their packets, from the ARPHRD_ number of the
// interface.
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

// maxName is the longest name in bytes, that of an alternative name (ALTIFNAMSIZ less the zero, linux/if.h).
const maxName = 127

// ErrNotFound means that there is no interface of that name.
var ErrNotFound = errors.New("there is no such interface in this network namespace (see: ip link)")

// Device is a network interface at the time of the lookup.
type Device struct {
	Name  string // the one in front of the alternative names
	Index int
	MTU   int
	Encap string // the name of its ARPHRD_ number, as ip link shows it: ether, none, ipip
	Kind  string // the kind that ip -d link shows: veth, tun, wireguard; device for a card
	Link  linktype.Type
	Known bool // Link is one that flows take
}

// ValidName returns an error for an invalid name, by the rules of dev_valid_name in the kernel
// (net/core/dev.c).
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

// Of returns the device of a link.
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

// linkOf returns the link type of packets as the XDP program sees them, by netlink's name for an ARPHRD_
// number. It knows only types that are the same on every kernel. Packets of gre and sit begin with the header
// of the outer packet.
func linkOf(encap string) (linktype.Type, bool) {
	switch encap {
	case "ether", "loopback":
		return linktype.Ethernet, true
	case "none", "rawip", "ipip", "tunnel6":
		return linktype.RawIP, true
	}
	return 0, false
}

// Describe describes a device for errors: "tun0 (type none, tun)".
func (d Device) Describe() string { return fmt.Sprintf("%s (type %s, %s)", d.Name, d.Encap, d.Kind) }

// ErrLinkType means that the packets of an interface do not have the required link type.
var ErrLinkType = errors.New("link type does not fit")

// NeedEthernet returns an error for a device whose packets do not begin with an Ethernet header. what names
// the part that needs them to.
func (d Device) NeedEthernet(what string) error {
	switch {
	case d.Known && d.Link == linktype.Ethernet:
		return nil
	case d.Known:
		return fmt.Errorf("%w: packets of %s have no Ethernet header, which %s needs (capture works there: unifiedd capture -i %s)", ErrLinkType, d.Describe(), what, d.Name)
	}
	return d.Unknown()
}

// Unknown returns an error for a device whose packets have an unknown link type.
func (d Device) Unknown() error {
	if d.Known {
		return nil
	}
	return fmt.Errorf("%w: packets of %s begin with neither an Ethernet nor an IP header, so neither filters nor captures of them are possible (use the interface below it)", ErrLinkType, d.Describe())
}

// Sends returns an error if the device cannot send packets unchanged. Of the devices without Ethernet headers
// only tun can. WireGuard and the kernel's tunnels need a protocol with each packet, and AF_XDP has none.
func (d Device) Sends() error {
	if d.Known && d.Link != linktype.Ethernet && d.Kind != "tun" {
		return fmt.Errorf("%w: packets of %s have no Ethernet header, and the kernel drops those that are sent to it without a protocol (send by the interface below it)", ErrLinkType, d.Describe())
	}
	return d.Unknown()
}
