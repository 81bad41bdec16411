package mirror

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// sweep removes mirrors of killed processes from the thread's network namespace. Mirrors that are
// in use stay.
func sweep() error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	return removeStale(h)
}

func removeStale(h *netlink.Handle) error {
	links, err := h.LinkList()
	if err != nil {
		return fmt.Errorf("list the interfaces: %w", err)
	}
	names := map[string]netlink.Link{}
	for _, l := range links {
		names[l.Attrs().Name] = l
	}
	free, err := unowned(h, links, names)
	defer func() {
		for _, s := range free {
			_ = s.close()
		}
	}()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range links {
		errs = append(errs, takeOff(h, l.Attrs().Index, func(number int) bool { return free[number] != nil }))
	}
	for number := range free {
		if l := names[nearName(number)]; l != nil && l.Type() == "veth" {
			errs = append(errs, pair{near: l.Attrs().Index}.remove(h))
		}
	}
	return errors.Join(errs...)
}

// unowned claims the numbers without an owner, so that no other process takes them during the
// sweep. The caller closes them.
func unowned(h *netlink.Handle, links []netlink.Link, names map[string]netlink.Link) (map[int]*slot, error) {
	there := map[int]bool{}
	for number := range slots {
		there[number] = names[nearName(number)] != nil
	}
	for _, l := range links {
		ours, _, err := filters(h, l.Attrs().Index)
		if err != nil {
			return nil, err
		}
		for _, f := range ours {
			there[f.number] = true
		}
	}
	free := map[int]*slot{}
	for number, is := range there {
		if !is {
			continue
		}
		s, err := claim(number)
		if err != nil {
			return free, err
		}
		if s != nil {
			free[number] = s
		}
	}
	return free, nil
}
