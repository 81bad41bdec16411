package mirror

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// maxMTU is the largest MTU of a veth (ETH_MAX_MTU, include/uapi/linux/if_ether.h). The loopback's packets of
// 65536 bytes pass, since there is room for a VLAN tag.
const maxMTU = 65535

// pair is the two ends of a veth, by their indices.
type pair struct {
	near int // copies enter here
	far  int // and arrive here
}

func nearName(number int) string { return fmt.Sprintf("ufd-mir%d", number) }
func farName(number int) string  { return fmt.Sprintf("ufd-cap%d", number) }

// makePair makes the veth. It is down, and configured so that the kernel does not send on it.
func makePair(h *netlink.Handle, number int, of string, mtu int) (p pair, err error) {
	near, far := nearName(number), farName(number)
	mtu = min(mtu, maxMTU)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = near, mtu
	attrs.NumTxQueues, attrs.NumRxQueues = int(directions), int(directions)
	veth := &netlink.Veth{
		LinkAttrs: attrs, PeerName: far, PeerMTU: uint32(mtu),
		PeerNumTxQueues: uint32(directions), PeerNumRxQueues: uint32(directions),
	}
	if err := h.LinkAdd(veth); err != nil {
		return p, fmt.Errorf("make the veth pair %s and %s: %w%s", near, far, err, remedy(err))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.LinkDel(veth))
		}
	}()
	for name, index := range map[string]*int{near: &p.near, far: &p.far} {
		link, err := h.LinkByName(name)
		if err != nil {
			return p, fmt.Errorf("look up %s: %w", name, err)
		}
		*index = link.Attrs().Index
		if err := quiet(h, link, of); err != nil {
			return p, fmt.Errorf("set up %s: %w", name, err)
		}
	}
	if err := offloadsOff(p.near); err != nil {
		return p, fmt.Errorf("turn the offloads of %s off: %w", near, err)
	}
	if err := p.buffer(h); err != nil {
		return p, fmt.Errorf("give %s a queue: %w", near, err)
	}
	return p, nil
}

// buffer gives the near end a qdisc, as long as the device says (1000 packets of the host). A veth's ring has 256 entries,
// and a packet of 64 KiB fills 45 of them. With a qdisc packets wait until there is room (veth since Linux
// 6.16); before that they are dropped.
func (p pair) buffer(h *netlink.Handle) error {
	return h.QdiscReplace(&netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: p.near, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}, QdiscType: "pfifo",
	})
}

// remedy says in plain words what to do about an error of the kernel.
func remedy(err error) string {
	switch {
	case errors.Is(err, unix.EPERM):
		return " (run as root, or with CAP_NET_ADMIN)"
	case errors.Is(err, unix.EOPNOTSUPP):
		return " (the kernel needs the module veth)"
	}
	return ""
}

// noAddresses is IN6_ADDR_GEN_MODE_NONE of include/uapi/linux/if_link.h.
const noAddresses = 1

// quiet keeps the kernel from sending on an end: no ARP, no IPv6 address.
func quiet(h *netlink.Handle, link netlink.Link, of string) error {
	if err := h.LinkSetARPOff(link); err != nil {
		return err
	}
	// A kernel without IPv6 returns EAFNOSUPPORT or the like. It assigns no address.
	if err := h.LinkSetIP6AddrGenMode(link, noAddresses); err != nil && !errors.Is(err, unix.EAFNOSUPPORT) && !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	return h.LinkSetAlias(link, "unifiedd mirror of "+of)
}

// up sets both ends up, so that copies pass.
func (p pair) up(h *netlink.Handle) error {
	for _, index := range []int{p.far, p.near} {
		link, err := h.LinkByIndex(index)
		if err == nil {
			err = h.LinkSetUp(link)
		}
		if err != nil {
			return fmt.Errorf("set the veth pair up: %w", err)
		}
	}
	return nil
}

// remove removes both ends. It succeeds if the pair no longer exists.
func (p pair) remove(h *netlink.Handle) error {
	link, err := h.LinkByIndex(p.near)
	if err == nil {
		err = h.LinkDel(link)
	}
	if err != nil && !errors.As(err, new(netlink.LinkNotFoundError)) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove the veth pair: %w", err)
	}
	return nil
}
