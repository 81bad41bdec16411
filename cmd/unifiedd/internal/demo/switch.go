package demo

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// addBridge makes a bridge in the namespace, and sets it up.
func (n *namespace) addBridge() (*netlink.Bridge, error) {
	if err := n.do(noIPv6); err != nil {
		return nil, err
	}
	h, err := netlink.NewHandleAt(n.ns)
	if err != nil {
		return nil, fmt.Errorf("open netlink in %s: %w", n.name, err)
	}
	defer h.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = "switch", switched.mtu
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	if err := h.LinkAdd(bridge); err != nil {
		return nil, fmt.Errorf("make a bridge in %s: %w", n.name, err)
	}
	if err := h.LinkSetUp(bridge); err != nil {
		return nil, fmt.Errorf("set the bridge in %s up: %w", n.name, err)
	}
	return bridge, nil
}

// plug joins a namespace to the bridge by a veth pair, and gives its end an address.
func (n *namespace) plug(bridge *netlink.Bridge, end *namespace, number byte) error {
	if err := end.do(noIPv6); err != nil {
		return err
	}
	h, err := netlink.NewHandleAt(end.ns)
	if err != nil {
		return fmt.Errorf("open netlink in %s: %w", end.name, err)
	}
	defer h.Close()
	port := wire{name: fmt.Sprintf("port%d", number)}
	mac := switched.mac(number)
	mac[4] |= 0x80 // of the bridge's port
	if err := h.LinkAdd(switched.pair(switched.mac(number), port.name, mac, n)); err != nil {
		return fmt.Errorf("make a veth pair between %s and %s: %w", end.name, n.name, err)
	}
	return errors.Join(end.up(switched, number), n.enslave(port, bridge), end.awaitCarrier(switched))
}

// enslave makes an interface a port of the bridge, and sets it up.
func (n *namespace) enslave(port wire, bridge *netlink.Bridge) error {
	h, link, err := n.handle(port)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := h.LinkSetMaster(link, bridge); err != nil {
		return fmt.Errorf("make %s in %s a port of the bridge: %w", port.name, n.name, err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s in %s up: %w", port.name, n.name, err)
	}
	return nil
}
