package verbs

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/unifiedd/unifiedd/rdma"
)

// class is the directory with the kernel's RDMA devices:
// Documentation/ABI/stable/sysfs-class-infiniband.
const class = "/sys/class/infiniband"

// KernelDevices lists the RDMA devices of the kernel, whether libibverbs has a driver for them or
// not.
func KernelDevices() ([]string, error) {
	names, err := list(class)
	if err != nil {
		return nil, fmt.Errorf("list the kernel's RDMA devices: %w", err)
	}
	return names, nil
}

// list lists a directory. A missing one is empty.
func list(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// ReadGIDs reads the used entries of a port's GID table.
func ReadGIDs(device string, port uint8) ([]rdma.GIDEntry, error) {
	dir, err := portDir(device, port)
	if err != nil {
		return nil, err
	}
	places, err := list(filepath.Join(dir, "gids"))
	if err != nil {
		return nil, fmt.Errorf("read the GIDs of port %d of %s: %w", port, device, err)
	}
	var table []rdma.GIDEntry
	for _, place := range places {
		if e, ok := readGID(dir, place); ok {
			table = append(table, e)
		}
	}
	slices.SortFunc(table, func(a, b rdma.GIDEntry) int { return a.Index - b.Index })
	return table, nil
}

// portDir returns the directory of a port. The name comes from a user.
func portDir(device string, port uint8) (string, error) {
	if device == "" || device == "." || device == ".." || strings.Contains(device, "/") {
		return "", fmt.Errorf("RDMA device %q: that is no device's name", device)
	}
	return filepath.Join(class, device, "ports", strconv.Itoa(int(port))), nil
}

// readGID reads one entry; ok is false if it is empty.
func readGID(dir, place string) (e rdma.GIDEntry, ok bool) {
	index, err1 := strconv.Atoi(place)
	addr, err2 := netip.ParseAddr(read(dir, "gids", place))
	if err1 != nil || err2 != nil || addr == netip.IPv6Unspecified() {
		return e, false
	}
	e = rdma.GIDEntry{GID: rdma.GIDOf(addr), Index: index, Type: gidType(read(dir, "gid_attrs", "types", place))}
	if card, err := net.InterfaceByName(read(dir, "gid_attrs", "ndevs", place)); err == nil {
		e.Interface = card.Index
	}
	if e.Type == rdma.InfiniBand && e.Interface != 0 {
		e.Type = rdma.RoCE1 // the kernel uses one name for both
	}
	return e, true
}

func gidType(text string) rdma.GIDType {
	if text == "RoCE v2" {
		return rdma.RoCE2
	}
	return rdma.InfiniBand
}

// read returns the content of a file without surrounding space; "" if it cannot be read.
func read(path ...string) string {
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
