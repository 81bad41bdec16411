// Package sriov says which network interfaces are virtual functions (VFs) of a PCI card, of which physical function
// (PF), and what the PF allows them.
//
// The kernel tells the settings of VFs only with their PF's interface, in the PF's network namespace. [Of] finds the
// PF by PCI addresses, because /sys shows the interfaces of another namespace if it was mounted there. The functions
// may be called from any goroutine, and look in the network namespace of the calling thread.
package sriov

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
)

// devices has the PCI devices by their addresses.
const devices = "/sys/bus/pci/devices"

// Function is a VF.
type Function struct {
	Number int    // as in ip link set PF vf NUMBER
	Bus    string // PCI address of the PF
	PF     string // interface of the PF; empty: this network namespace has none
	Policy Policy // what the PF's interface says; valid if PF is not empty
}

// ErrNotVF means that an interface is no VF.
var ErrNotVF = errors.New("not a virtual function")

// Of returns the VF at a PCI address. The error matches [ErrNotVF] if the device there is none.
func Of(bus string) (Function, error) {
	if bus == "" || bus != filepath.Base(bus) {
		return Function{}, ErrNotVF
	}
	physical, err := filepath.EvalSymlinks(filepath.Join(devices, bus, "physfn"))
	if err != nil {
		return Function{}, ErrNotVF
	}
	f := Function{Bus: filepath.Base(physical)}
	if f.Number, err = number(physical, bus); err != nil {
		return f, err
	}
	links, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return f, fmt.Errorf("list the interfaces: %w", err)
	}
	for _, l := range links {
		if a := l.Attrs(); a.ParentDevBus == "pci" && a.ParentDev == f.Bus {
			policies, err := Policies(a.Index)
			if err != nil {
				return f, err
			}
			i := slices.IndexFunc(policies, func(p Policy) bool { return p.Number == f.Number })
			if i >= 0 { // not a port representor
				f.PF, f.Policy = a.Name, policies[i]
				return f, nil
			}
		}
	}
	return f, nil
}

// number returns the number of the VF at a PCI address: that of the PF's link to it.
func number(physical, bus string) (int, error) {
	links, _ := filepath.Glob(filepath.Join(physical, "virtfn*"))
	for _, link := range links {
		to, err := os.Readlink(link)
		n, e := strconv.Atoi(strings.TrimPrefix(filepath.Base(link), "virtfn"))
		if err == nil && e == nil && filepath.Base(to) == bus {
			return n, nil
		}
	}
	return 0, fmt.Errorf("the physical function %s has no virtual function %s", filepath.Base(physical), bus)
}

// Interfaces returns the interfaces of the VFs of a PF, by the number of the VF; those that are not in this network
// namespace, or have no network driver, are missing.
func Interfaces(bus string) map[int]string {
	links, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil
	}
	all := map[int]string{}
	for _, l := range links {
		a := l.Attrs()
		if a.ParentDevBus != "pci" {
			continue
		}
		physical, err := filepath.EvalSymlinks(filepath.Join(devices, a.ParentDev, "physfn"))
		if err != nil || filepath.Base(physical) != bus {
			continue
		}
		if n, err := number(physical, a.ParentDev); err == nil {
			all[n] = a.Name
		}
	}
	return all
}
