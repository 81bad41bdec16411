package network

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Errors to be matched with errors.Is.
var (
	// ErrInterfaceGone: the interface was deleted or moved to another network namespace, or never was.
	ErrInterfaceGone = errors.New("interface is gone")
	// ErrInterfaceDown: it is set down, or its link does not work.
	ErrInterfaceDown = errors.New("interface is down")
	// ErrNotEthernet: packets of the interface have no Ethernet header.
	ErrNotEthernet = errors.New("not an Ethernet interface")
	// ErrSource: the place of the table is empty, or has an address of the other family than the peer's.
	ErrSource = errors.New("source address does not fit")
	// ErrNoRoute: the kernel's routes lead to the peer nowhere, or not over this interface.
	ErrNoRoute = errors.New("no route")
	// ErrUnanswered: the peer, or the gateway to it, does not answer to ARP or neighbour discovery.
	ErrUnanswered = errors.New("neighbour does not answer")
	// ErrPermission: the process may not have the kernel ask for a neighbour.
	ErrPermission = errors.New("not permitted")
	// ErrClosed: the Interface was closed.
	ErrClosed = errors.New("interface is closed")
)

// linkError gives a missing interface its type; ERANGE is a name that is too long for one.
func linkError(err error) error {
	if errors.As(err, new(netlink.LinkNotFoundError)) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ERANGE) {
		return errGone
	}
	return fmt.Errorf("look the interface up: %w", err)
}

var errGone = fmt.Errorf("%w, or never was in this network namespace (see: ip link)", ErrInterfaceGone)
