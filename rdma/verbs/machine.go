package verbs

import (
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/unifiedd/unifiedd/rdma"
)

// Machine describes what this machine has for RDMA, for people to read.
type Machine struct {
	Library error // why libibverbs cannot be used; nil: it can
	Modules []Module
	// Memlock is the limit on pinned memory in bytes; math.MaxUint64 means no limit. Regions must
	// fit.
	Memlock uint64
	Devices []Found // sorted by name
}

// Module is a part of the kernel.
type Module struct {
	Name   string
	For    string // what it is needed for
	Loaded bool   // as a module or built in
}

// Found is a device of the kernel.
type Found struct {
	Name         string
	Err          error // why it cannot be opened; nil: it can, and Capabilities is valid
	Capabilities rdma.Capabilities
	Ports        []FoundPort
}

// FoundPort is a port of a device. If the device cannot be opened, it has only the kernel's
// information: number, state, link layer and LIDs.
type FoundPort struct {
	rdma.Port
	GIDs []rdma.GIDEntry
	// Interface is the network interface whose addresses are the GIDs; "": none. InterfaceMTU
	// is its MTU in bytes.
	Interface    string
	InterfaceMTU int
	Advice       []string // possible improvements, and how to make them
}

// modules are the kernel modules that verbs need, each with a file that exists while it is loaded.
var modules = []struct{ name, use, sign string }{
	{"ib_uverbs", "RDMA from programs", "/sys/class/infiniband_verbs"},
	{"rdma_ucm", "connections by rdma_cm", "/sys/class/misc/rdma_cm"},
	{"rdma_rxe", "Soft-RoCE: RDMA devices of any network interface", "/sys/module/rdma_rxe"},
}

// Examine finds the devices of the machine. It opens each one briefly.
func Examine() (Machine, error) {
	m := Machine{}
	names, err := KernelDevices()
	if err != nil {
		return m, err
	}
	if m.Memlock, err = Memlock(); err != nil {
		return m, err
	}
	_, m.Library = Provider{}.Devices()
	for _, module := range modules {
		_, err := os.Stat(module.sign)
		m.Modules = append(m.Modules, Module{module.name, module.use, err == nil})
	}
	for _, name := range names {
		m.Devices = append(m.Devices, examine(name))
	}
	return m, nil
}

// examine describes a device, as far as possible.
func examine(name string) Found {
	f := Found{Name: name}
	device, err := Provider{}.Open(name)
	if f.Err = err; err == nil {
		defer func() { _ = device.Close() }() // nothing was made from it
		f.Capabilities = device.Capabilities()
	}
	numbers, _ := list(class + "/" + name + "/ports")
	for _, text := range numbers {
		if n, err := strconv.ParseUint(text, 10, 8); err == nil {
			f.Ports = append(f.Ports, examinePort(name, device, uint8(n)))
		}
	}
	slices.SortFunc(f.Ports, func(a, b FoundPort) int { return int(a.Number) - int(b.Number) })
	return f
}

// examinePort describes a port, through libibverbs if the device is open.
func examinePort(name string, device rdma.Device, number uint8) FoundPort {
	var p FoundPort
	if device != nil {
		p.Port, _ = device.Port(number)
		p.Number = number // even if the rest is unknown
		p.GIDs, _ = device.GIDs(number)
	} else {
		p.Port = kernelPort(name, number)
		p.GIDs, _ = ReadGIDs(name, number)
	}
	for _, e := range p.GIDs {
		if card, err := net.InterfaceByIndex(e.Interface); err == nil {
			p.Interface, p.InterfaceMTU = card.Name, card.MTU
			break
		}
	}
	p.advise()
	return p
}

// kernelPort returns the kernel's information about a port.
func kernelPort(name string, number uint8) rdma.Port {
	p := rdma.Port{Number: number}
	dir, err := portDir(name, number)
	if err != nil {
		return p
	}
	_, p.State, _ = strings.Cut(read(dir, "state"), ": ")
	p.Active = p.State == "ACTIVE"
	switch read(dir, "link_layer") {
	case "Ethernet":
		p.LinkLayer = rdma.LinkEthernet
	case "InfiniBand":
		p.LinkLayer = rdma.LinkInfiniBand
	}
	p.LID, p.SubnetLID = number16(read(dir, "lid")), number16(read(dir, "sm_lid"))
	return p
}

// number16 parses a number such as 0x12. It returns 0 for anything else.
func number16(text string) uint16 {
	n, err := strconv.ParseUint(text, 0, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}

func (p *FoundPort) advise() {
	if !p.Active {
		p.Advice = append(p.Advice, fmt.Sprintf("the port is %s: %s", p.State, p.remedy()))
	}
	if p.LinkLayer != rdma.LinkEthernet {
		return
	}
	if !slices.ContainsFunc(p.GIDs, func(e rdma.GIDEntry) bool { return e.Type == rdma.RoCE2 }) {
		p.Advice = append(p.Advice, "the port has no address for RoCE v2: give its network interface an IP address")
	}
	fits := rdma.FitsInterface(p.InterfaceMTU)
	switch {
	case p.ActiveMTU == 0 || p.InterfaceMTU == 0:
	case p.ActiveMTU > fits:
		p.Advice = append(p.Advice, fmt.Sprintf("the port sends packets of %v bytes, which the MTU of %s, %d, does not carry: raise it", p.ActiveMTU, p.Interface, p.InterfaceMTU))
	case p.ActiveMTU < p.MaxMTU:
		p.Advice = append(p.Advice, fmt.Sprintf("packets carry %v bytes; with an MTU of %s of %d they would carry %v (ip link set dev %[2]s mtu %[3]d)",
			p.ActiveMTU, p.Interface, enough(p.MaxMTU), p.MaxMTU))
	}
}

// remedy returns the remedy for a port that is not active.
func (p *FoundPort) remedy() string {
	switch {
	case p.LinkLayer == rdma.LinkInfiniBand && p.State == "INIT":
		return "no subnet manager has configured it: start one (opensm)"
	case p.Interface != "":
		return fmt.Sprintf("set its network interface up (ip link set dev %s up), and look at the cable", p.Interface)
	}
	return "set its network interface up, and look at the cable"
}

// enough returns the smallest interface MTU that carries packets of that many bytes.
func enough(m rdma.MTU) int {
	mtu := m.Bytes()
	for rdma.FitsInterface(mtu) < m && mtu < math.MaxUint16 {
		mtu++
	}
	return mtu
}
