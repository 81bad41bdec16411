package main

import (
	"fmt"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/selftests/lab/wire"
)

// probing is how long the kernel may take to find all cards.
const probing = 20 * time.Second

// nameCards gives the interfaces their names, and sets up those with addresses and
// the loopback interface.
func nameCards(cards []wire.Card) error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("set the loopback interface up: %w", err)
	}
	for _, card := range cards {
		link, err := await(card.MAC)
		if err == nil {
			err = prepare(link, card)
		}
		if err != nil {
			return fmt.Errorf("prepare card %s (%s): %w", card.Name, card.MAC, err)
		}
	}
	return nil
}

func await(mac string) (netlink.Link, error) {
	for end := time.Now().Add(probing); ; time.Sleep(10 * time.Millisecond) {
		links, err := netlink.LinkList()
		if err != nil {
			return nil, fmt.Errorf("list the interfaces: %w", err)
		}
		for _, l := range links {
			if l.Attrs().HardwareAddr.String() == mac {
				return l, nil
			}
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("the kernel has not found it in %v", probing)
		}
	}
}

func prepare(link netlink.Link, card wire.Card) error {
	if err := netlink.LinkSetName(link, card.Name); err != nil {
		return fmt.Errorf("name it: %w", err)
	}
	if card.Address == "" {
		return nil
	}
	addr, err := netlink.ParseAddr(card.Address)
	if err == nil {
		err = netlink.AddrAdd(link, addr)
	}
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("give it the address %s: %w", card.Address, err)
	}
	return nil
}
