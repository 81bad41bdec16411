package network

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// Names lists the interfaces of the calling thread's network namespace that can be opened, are up and have an
// address. VLANs are not among them: they come with what they are on.
func Names() (names []string, err error) {
	k, err := newKernel()
	if err == nil {
		defer k.close()
		names, err = k.names()
	}
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	return names, nil
}

func (k *kernel) names() (names []string, err error) {
	var all []netlink.Link
	err = k.list(func(h *netlink.Handle) error {
		all, err = h.LinkList()
		return err
	})
	if err != nil {
		return nil, err
	}
	var links []link
	for _, l := range all {
		if open, ok := linkOf(l); ok && open.up && l.Type() != "vlan" {
			links = append(links, open)
		}
	}
	return k.withAddress(links)
}

// withAddress are the names of those that have an address.
func (k *kernel) withAddress(links []link) (names []string, err error) {
	addresses, err := k.addresses(links)
	for _, l := range links {
		for _, a := range addresses {
			if a.link == l.index {
				names = append(names, l.name)
				break
			}
		}
	}
	return names, err
}
