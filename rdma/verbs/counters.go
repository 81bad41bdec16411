package verbs

import (
	"fmt"
	"path/filepath"
	"strconv"
	"time"
)

// Counter is one of a port's counters, by the kernel's name for it
// (Documentation/ABI/stable/sysfs-class-infiniband). Counters start when the device is made, and
// other programs may reset them.
type Counter struct {
	Name string
	// Value is in the unit that the name says; port_rcv_data and port_xmit_data are in units of
	// four bytes.
	Value uint64
	// Hardware means that the counter is one of the device's own (hw_counters), and not one that
	// all InfiniBand ports have. Soft-RoCE has only these.
	Hardware bool
}

// ReadCounters reads the counters of a port, sorted by name; those that all ports have come first.
// It omits counters that the device lacks. It allocates, and reads a file for each counter. The
// kernel caches a device's own counters: see [CountersLifespan].
func ReadCounters(device string, port uint8) ([]Counter, error) {
	dir, err := portDir(device, port)
	if err != nil {
		return nil, err
	}
	common, err := readCounters(filepath.Join(dir, "counters"), false)
	if err != nil {
		return nil, fmt.Errorf("read the counters of port %d of %s: %w", port, device, err)
	}
	own, err := readCounters(filepath.Join(dir, "hw_counters"), true)
	if err != nil {
		return nil, fmt.Errorf("read the counters of port %d of %s: %w", port, device, err)
	}
	return append(common, own...), nil
}

// CountersLifespan returns how long the kernel caches the hardware counters of a port
// (hw_counters/lifespan, 10 ms by default). To count packets that were just sent, wait that long.
// It is 0 for a device without such counters.
func CountersLifespan(device string, port uint8) (time.Duration, error) {
	dir, err := portDir(device, port)
	if err != nil {
		return 0, err
	}
	ms, err := strconv.ParseUint(read(dir, "hw_counters", "lifespan"), 10, 16)
	if err != nil {
		return 0, nil
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// PortID names a port of a device.
type PortID struct {
	Device string
	Port   uint8
}

// PortsOf lists the ports of RDMA devices that are on a network interface, by its name in the
// network namespace of the caller: usually none or one. It allocates, and reads a file for
// each port of the machine.
func PortsOf(iface string) ([]PortID, error) { return portsOf(class, iface) }

func portsOf(class, iface string) (found []PortID, err error) {
	devices, err := list(class)
	if err != nil {
		return nil, fmt.Errorf("list the kernel's RDMA devices: %w", err)
	}
	for _, device := range devices {
		ports, err := list(filepath.Join(class, device, "ports"))
		if err != nil {
			return nil, fmt.Errorf("list the ports of %s: %w", device, err)
		}
		for _, port := range ports {
			n, err := strconv.ParseUint(port, 10, 8)
			if err == nil && iface != "" && read(class, device, "ports", port, "gid_attrs/ndevs/0") == iface {
				found = append(found, PortID{device, uint8(n)})
			}
		}
	}
	return found, nil
}

func readCounters(dir string, hardware bool) ([]Counter, error) {
	names, err := list(dir)
	if err != nil {
		return nil, err
	}
	var counters []Counter
	for _, name := range names {
		value, err := strconv.ParseUint(read(dir, name), 10, 64)
		if err != nil || name == "lifespan" { // how long the kernel caches counters
			continue
		}
		counters = append(counters, Counter{name, value, hardware})
	}
	return counters, nil
}
