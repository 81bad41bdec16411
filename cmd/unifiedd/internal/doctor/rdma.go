package doctor

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/caps"
	"github.com/unifiedd/unifiedd/rdma/verbs"
)

// addRDMA examines the requirements of RDMA, and each RDMA device. It opens the library and each
// device as a flow would.
func (r *Report) addRDMA(n needs) {
	const subject = "RDMA"
	m, err := verbs.Examine()
	if err != nil {
		r.add(subject, []Check{unknown("devices", "%v", err)})
		return
	}
	r.add(subject, append(rdmaOf(m, modulesOffered()), pinnedMemory(n, m)))
	for _, d := range m.Devices {
		r.add("RDMA device "+d.Name, rdmaDevice(d))
	}
}

// rdmaOf returns the checks that concern all devices. offered is the kernel's list of modules.
func rdmaOf(m verbs.Machine, offered []string) []Check {
	checks := []Check{library(m)}
	for _, module := range m.Modules {
		checks = append(checks, kernelModule(module, len(m.Devices), offered))
	}
	return append(checks, rdmaDevices(m))
}

// library reports whether libibverbs can be used. Without a device it is not needed.
func library(m verbs.Machine) Check {
	const name = "libibverbs"
	switch {
	case m.Library == nil:
		return ok(name, "there")
	case len(m.Devices) == 0:
		return advised(ok, name, m.Library.Error())
	}
	return advised(warn, name, m.Library.Error())
}

// advised returns a check from a text that ends with the remedy, in parentheses or after a colon.
func advised(state func(name, format string, args ...any) Check, name, text string) Check {
	if at := strings.LastIndex(text, " ("); at >= 0 && strings.HasSuffix(text, ")") {
		return state(name, "%s", text[:at]).with("%s", text[at+2:len(text)-1])
	}
	if at := strings.LastIndex(text, ": "); at >= 0 {
		return state(name, "%s", text[:at]).with("%s", text[at+2:])
	}
	return state(name, "%s", text)
}

// kernelModule reports whether a kernel module is loaded. A missing ib_uverbs is a warning if there
// are devices, since every device needs it.
func kernelModule(m verbs.Module, devices int, offered []string) Check {
	name := "module " + m.Name
	if m.Loaded {
		return ok(name, "loaded: %s", m.For)
	}
	state, remedy := ok, "modprobe "+m.Name
	if devices > 0 && m.Name == "ib_uverbs" {
		state = warn
	}
	if len(offered) > 0 && !offers(offered, m.Name) {
		remedy = fmt.Sprintf("run a kernel that has %s: this one does not", m.Name)
	}
	return state(name, "not loaded: %s", m.For).with("%s", remedy)
}

// modulesOffered returns the modules of the running kernel, none if no list exists. modules.dep(5).
func modulesOffered() []string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil
	}
	return lines("/lib/modules/" + unix.ByteSliceToString(u.Release[:]) + "/modules.dep")
}

func offers(modules []string, name string) bool {
	return slices.ContainsFunc(modules, func(line string) bool {
		path, _, _ := strings.Cut(line, ":")
		return strings.Contains(path, "/"+name+".ko")
	})
}

func rdmaDevices(m verbs.Machine) Check {
	const name = "devices"
	if len(m.Devices) == 0 {
		return ok(name, "none").with("for Soft-RoCE: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev IFACE")
	}
	var names []string
	for _, d := range m.Devices {
		names = append(names, d.Name)
	}
	return ok(name, "%s", strings.Join(names, ", "))
}

// pinnedMemory compares the limit with the memory that a registration pins: the whole region,
// including huge pages, charged to the process (ib_umem_get in drivers/infiniband/core/umem.c).
func pinnedMemory(n needs, m verbs.Machine) Check {
	s, err := caps.Self()
	if err != nil {
		return unknown("pinned memory", "%v", err)
	}
	return judgePinned(uint64(n.Region.Size), m, s.Effective)
}

func judgePinned(need uint64, m verbs.Machine, have caps.Set) Check {
	const name = "pinned memory"
	told := "limit unlimited"
	if m.Memlock != math.MaxUint64 {
		told = "limit " + mebibytes(m.Memlock)
	}
	switch {
	case have.Has(caps.IPCLock):
		return ok(name, "%s, which CAP_IPC_LOCK lifts", told)
	case m.Memlock >= need:
		return ok(name, "%s; a region of %s is registered once with each device", told, mebibytes(need))
	}
	c := ok(name, "%s, and a region of %s is registered with each device", told, mebibytes(need)).
		with("grant CAP_IPC_LOCK, or set LimitMEMLOCK=%dM (ulimit -l %d)", (need+1<<20-1)>>20, (need+1023)>>10)
	if len(m.Devices) > 0 {
		c = c.as(Warn)
	}
	return c
}

// rdmaDevice checks a device and its ports.
func rdmaDevice(d verbs.Found) []Check {
	var checks []Check
	if d.Err != nil {
		checks = append(checks, advised(warn, "device", d.Err.Error()))
	} else {
		c := d.Capabilities
		checks = append(checks, ok("device", "it opens; %d queue pairs of %d work requests, registrations of up to %s, atomics: %s",
			c.MaxQueuePairs, c.MaxWorkRequests, registration(c.MaxMemoryRegion), yes(c.Atomics)))
	}
	for _, p := range d.Ports {
		checks = append(checks, rdmaPort(p)...)
	}
	if len(d.Ports) == 0 {
		checks = append(checks, warn("ports", "none").with("look at the kernel's log: dmesg"))
	}
	return checks
}

func registration(bytes uint64) string {
	if bytes > math.MaxInt64 {
		return "any size"
	}
	return mebibytes(bytes)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// rdmaPort checks the state and the addresses of a port, and reports possible improvements.
func rdmaPort(p verbs.FoundPort) []Check {
	name := fmt.Sprintf("port %d", p.Number)
	told := fmt.Sprintf("%s, %v", p.State, p.LinkLayer)
	if p.Interface != "" {
		told += fmt.Sprintf(", interface %s of MTU %d", p.Interface, p.InterfaceMTU)
	}
	if p.ActiveMTU != 0 {
		told += fmt.Sprintf(", %v bytes in a packet, of %v", p.ActiveMTU, p.MaxMTU)
	}
	checks := []Check{ok(name, "%s", told)}
	for _, e := range p.GIDs {
		checks = append(checks, ok(fmt.Sprintf("%s GID %d", name, e.Index), "%v, %v", e.GID, e.Type))
	}
	for _, advice := range p.Advice {
		checks = append(checks, advised(warn, name+" advice", advice))
	}
	return checks
}
