package mirror

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// filterName returns the name of a filter; own says that a mirror also made the qdisc.
func filterName(number int, own bool) string {
	if own {
		return fmt.Sprintf("unifiedd-mirror-%d+clsact", number)
	}
	return fmt.Sprintf("unifiedd-mirror-%d", number)
}

// parseFilterName recognises a filter of a mirror by its name.
func parseFilterName(name string) (number int, own, ok bool) {
	name, own = strings.CutSuffix(name, "+clsact")
	_, err := fmt.Sscanf(name, "unifiedd-mirror-%d", &number)
	return number, own, err == nil && name == filterName(number, false)
}

// found is a filter that belongs to a mirror.
type found struct {
	*netlink.BpfFilter
	number int
	own    bool
}

// filters returns the filters of mirrors on an interface, and the number of other filters. An
// interface without clsact has none.
func filters(h *netlink.Handle, index int) (ours []found, others int, err error) {
	link := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: index}}
	for d := range directions {
		all, err := h.FilterList(link, parent(d))
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return nil, 0, fmt.Errorf("list the filters of interface %d: %w", index, err)
		}
		for _, f := range all {
			b, is := f.(*netlink.BpfFilter)
			if !is {
				others++
				continue
			}
			if number, own, ok := parseFilterName(b.Name); ok {
				ours = append(ours, found{b, number, own})
			} else {
				others++
			}
		}
	}
	return ours, others, nil
}

// ownsQdisc reports whether a mirror made the interface's clsact. The last mirror removes it.
func (m *Mirror) ownsQdisc(index int) bool {
	ours, _, _ := filters(m.handle, index)
	for _, f := range ours {
		if f.own {
			return true
		}
	}
	return false
}

// removeFilters takes this mirror's filters off an interface.
func (m *Mirror) removeFilters(index int) error {
	return takeOff(m.handle, index, func(number int) bool { return number == m.slot.number })
}

// takeOff removes the filters of some mirrors. It also removes clsact if one of these mirrors made it and it
// has no other filter.
func takeOff(h *netlink.Handle, index int, whose func(number int) bool) error {
	ours, others, err := filters(h, index)
	if err != nil {
		return err
	}
	own := false
	for _, f := range ours {
		if !whose(f.number) {
			others++
			continue
		}
		own = own || f.own
		if err := h.FilterDel(f.BpfFilter); err != nil && !isGone(err) {
			return fmt.Errorf("remove the filter %s from interface %d: %w", f.Name, index, err)
		}
	}
	if !own || others > 0 {
		return nil
	}
	err = h.QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}})
	if err != nil && !isGone(err) {
		return fmt.Errorf("remove the qdisc clsact from interface %d: %w", index, err)
	}
	return nil
}

// isGone reports whether the interface, or the object to be removed from it, does not exist.
func isGone(err error) bool {
	return errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL)
}
