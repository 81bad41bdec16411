package demo

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/vishvananda/netlink"
)

// The two ends of the pair. trafgen writes these addresses into its packets.
var (
	senderMAC   = net.HardwareAddr{2, 0x77, 0, 0, 0, 1}
	receiverMAC = net.HardwareAddr{2, 0x77, 0, 0, 0, 2}
	senderIP    = net.IPv4(10, 77, 0, 1)
	receiverIP  = net.IPv4(10, 77, 0, 2)
)

// join makes a veth pair between two namespaces and sets both ends up.
func join(a, b *namespace) error {
	for _, n := range []*namespace{a, b} {
		if err := n.do(noIPv6); err != nil {
			return err
		}
	}
	h, err := netlink.NewHandleAt(a.ns)
	if err != nil {
		return fmt.Errorf("open netlink in %s: %w", a.name, err)
	}
	defer h.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = iface, 1500, senderMAC
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerMTU, veth.PeerHardwareAddr = iface, 1500, receiverMAC
	veth.PeerNamespace = netlink.NsFd(b.ns)
	if err := h.LinkAdd(veth); err != nil {
		return fmt.Errorf("make a veth pair between %s and %s: %w", a.name, b.name, err)
	}
	return errors.Join(a.up(senderIP), b.up(receiverIP), b.awaitCarrier())
}

// noIPv6 keeps the kernel from sending on its own in the calling thread's
// namespace.
func noIPv6() error {
	err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// up gives the end its address and sets it up.
func (n *namespace) up(ip net.IP) error {
	h, link, err := n.handle()
	if err != nil {
		return err
	}
	defer h.Close()
	address := &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: net.CIDRMask(24, 32)}}
	if err := h.AddrAdd(link, address); err != nil {
		return fmt.Errorf("give %s in %s an address: %w", iface, n.name, err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s in %s up: %w", iface, n.name, err)
	}
	return nil
}

// awaitCarrier waits until both ends are up.
func (n *namespace) awaitCarrier() error {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		h, link, err := n.handle()
		if err != nil {
			return err
		}
		h.Close()
		if link.Attrs().OperState == netlink.OperUp {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s in %s has no carrier after 5 s", iface, n.name)
		}
	}
}

// detached reports whether no program is attached to the interface.
func (n *namespace) detached() error {
	h, link, err := n.handle()
	if err != nil {
		return err
	}
	defer h.Close()
	if x := link.Attrs().Xdp; x != nil && x.Attached {
		return fmt.Errorf("program %d is still attached to %s after the capture ended", x.ProgId, iface)
	}
	return nil
}

// unlink removes the pair at once.
func (n *namespace) unlink() error {
	h, link, err := n.handle()
	if err != nil {
		return nil // there is none
	}
	defer h.Close()
	if err := h.LinkDel(link); err != nil {
		return fmt.Errorf("delete the veth pair: %w", err)
	}
	return nil
}
