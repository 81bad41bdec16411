package demo

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
)

// wire is a veth pair, with the same name in both namespaces. trafgen writes the addresses of the
// first wire into its packets.
type wire struct {
	name string
	net  byte // in its addresses
	mtu  int
}

// The wires: packets to capture, packets to forward over RDMA, and RDMA itself, with a message of
// two KiB in one packet.
var (
	captured = wire{"eth0", 0, 1500}
	fed      = wire{"eth1", 1, 1500}
	remote   = wire{"eth2", 2, 2300}
	wires    = []wire{captured, fed, remote}
)

// switched is the wire from each end of the group to the switch. Its ends have the addresses from 1 on.
var switched = wire{"eth0", 3, 2300}

// The ends of a wire.
const (
	sendingEnd   = 1
	receivingEnd = 2
)

func (w wire) ip(end byte) net.IP { return net.IPv4(10, 77, w.net, end) }

func (w wire) mac(end byte) net.HardwareAddr { return net.HardwareAddr{2, 0x77, 0, 0, w.net, end} }

// at returns the address of a port of an end.
func (w wire) at(end byte, port int) string {
	return net.JoinHostPort(w.ip(end).String(), strconv.Itoa(port))
}

// join joins two namespaces by all wires.
func join(a, b *namespace) error {
	for _, n := range []*namespace{a, b} {
		if err := n.do(noIPv6); err != nil {
			return err
		}
	}
	for _, w := range wires {
		if err := w.join(a, b); err != nil {
			return err
		}
	}
	return nil
}

// join makes the pair and sets both ends up.
func (w wire) join(a, b *namespace) error {
	h, err := netlink.NewHandleAt(a.ns)
	if err != nil {
		return fmt.Errorf("open netlink in %s: %w", a.name, err)
	}
	defer h.Close()
	if err := h.LinkAdd(w.pair(w.mac(sendingEnd), w.name, w.mac(receivingEnd), b)); err != nil {
		return fmt.Errorf("make a veth pair between %s and %s: %w", a.name, b.name, err)
	}
	return errors.Join(a.up(w, sendingEnd), b.up(w, receivingEnd), b.awaitCarrier(w))
}

// pair is a veth pair with the wire's name at its first end. Its other end is in namespace to.
func (w wire) pair(mac net.HardwareAddr, peer string, peerMAC net.HardwareAddr, to *namespace) *netlink.Veth {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = w.name, w.mtu, mac
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerMTU, veth.PeerHardwareAddr = peer, uint32(w.mtu), peerMAC
	veth.PeerNamespace = netlink.NsFd(to.ns)
	return veth
}

// noIPv6 keeps the kernel from sending IPv6 packets in the calling thread's namespace.
func noIPv6() error {
	err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// up gives the end its address and sets it up.
func (n *namespace) up(w wire, end byte) error {
	h, link, err := n.handle(w)
	if err != nil {
		return err
	}
	defer h.Close()
	address := &netlink.Addr{IPNet: &net.IPNet{IP: w.ip(end), Mask: net.CIDRMask(24, 32)}}
	if err := h.AddrAdd(link, address); err != nil {
		return fmt.Errorf("give %s in %s an address: %w", w.name, n.name, err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s in %s up: %w", w.name, n.name, err)
	}
	return nil
}

// awaitCarrier waits until both ends are up.
func (n *namespace) awaitCarrier(w wire) error {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		h, link, err := n.handle(w)
		if err != nil {
			return err
		}
		h.Close()
		if link.Attrs().OperState == netlink.OperUp {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s in %s has no carrier after 5 s", w.name, n.name)
		}
	}
}

// detached reports whether no program is attached to a wire.
func (n *namespace) detached(w wire) error {
	h, link, err := n.handle(w)
	if err != nil {
		return err
	}
	defer h.Close()
	if x := link.Attrs().Xdp; x != nil && x.Attached {
		return fmt.Errorf("program %d is still attached to %s after the capture ended", x.ProgId, w.name)
	}
	return nil
}

// unlink removes a pair at once.
func (n *namespace) unlink(w wire) error {
	h, link, err := n.handle(w)
	if err != nil {
		return nil // it does not exist
	}
	defer h.Close()
	if err := h.LinkDel(link); err != nil {
		return fmt.Errorf("delete the veth pair: %w", err)
	}
	return nil
}
