// Package numa returns the NUMA nodes of processors and devices, from /sys. If the kernel does not
// know the node, it is [Unknown].
package numa

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Unknown is the node of a device without a particular node, or whose node is not known.
const Unknown = -1

// root is the kernel's directory of devices.
const root = "/sys/devices"

// Nodes lists the nodes that are online; none if the kernel lists none.
func Nodes() []int {
	list, _ := readList(root + "/system/node/online")
	return list
}

// CPUs lists the processors of a node. A node with memory only has none.
func CPUs(node int) ([]int, error) {
	return readList(fmt.Sprintf("%s/system/node/node%d/cpulist", root, node))
}

// OfCPU returns the node of a processor.
func OfCPU(cpu int) int {
	found, err := filepath.Glob(fmt.Sprintf("%s/system/cpu/cpu%d/node[0-9]*", root, cpu))
	if err != nil || len(found) != 1 {
		return Unknown
	}
	return number(strings.TrimPrefix(filepath.Base(found[0]), "node"))
}

// OfPCI returns the node of a PCI device, by its address, such as 0000:03:00.0.
func OfPCI(address string) int {
	if address == "" || strings.Contains(address, "/") {
		return Unknown
	}
	return readNumber("/sys/bus/pci/devices/" + address + "/numa_node")
}

// OfPath returns the node of a device by its path in /dev, or for any other path the node of its
// disk.
func OfPath(path string) int {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Unknown
	}
	kind, dev := "block", st.Dev
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFBLK:
		dev = st.Rdev
	case unix.S_IFCHR:
		kind, dev = "char", st.Rdev
	}
	device, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/%s/%d:%d", kind, unix.Major(dev), unix.Minor(dev)))
	if err != nil {
		return Unknown
	}
	return ofDevice(device, layers)
}

// layers is how many layers of stacked disks ofDevice follows.
const layers = 4

// ofDevice returns the node of a device or, if it has none, of its parent. For a virtual disk it is
// the node of the disks or controllers below, if all have the same.
func ofDevice(device string, layers int) int {
	if n := above(device); n != Unknown || layers == 0 {
		return n
	}
	found := Unknown
	for _, pattern := range behind(device) {
		links, _ := filepath.Glob(pattern) // of nothing but letters, so never malformed
		for _, link := range links {
			if _, err := os.Readlink(link); err != nil {
				continue // part of the device itself
			}
			other, err := filepath.EvalSymlinks(link)
			if err != nil {
				continue
			}
			switch n := ofDevice(other, layers-1); {
			case found == Unknown:
				found = n
			case n != Unknown && n != found:
				return Unknown
			}
		}
	}
	return found
}

// behind returns the directory in which the kernel lists the disks of a volume, or the controllers
// of an NVMe subsystem. A namespace is a device of the subsystem when several controllers may have
// it.
func behind(device string) []string {
	patterns := []string{device + "/slaves/*"}
	if dir := filepath.Dir(device); strings.Contains(dir, "/nvme-subsystem/") {
		patterns = append(patterns, dir+"/nvme[0-9]*")
	}
	return patterns
}

func above(device string) int {
	for ; strings.HasPrefix(device, root+"/"); device = filepath.Dir(device) {
		if n := readNumber(filepath.Join(device, "numa_node")); n >= 0 {
			return n
		}
	}
	return Unknown
}

func readNumber(file string) int {
	b, err := os.ReadFile(file)
	if err != nil {
		return Unknown
	}
	return number(strings.TrimSpace(string(b)))
}

func number(s string) int {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return Unknown
	}
	return int(n)
}

// readList reads numbers in the kernel's form: "0-3,8".
func readList(file string) ([]int, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseList(strings.TrimSpace(string(b)))
}

// most bounds the numbers in a list.
const most = 1 << 16

func parseList(text string) (list []int, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		low, high, ranged := strings.Cut(part, "-")
		first := number(low)
		last := first
		if ranged {
			last = number(high)
		}
		if first < 0 || last < first || last-first >= most-len(list) {
			return nil, fmt.Errorf("%q is no list of numbers", text)
		}
		for n := first; n <= last; n++ {
			list = append(list, n)
		}
	}
	return list, nil
}
