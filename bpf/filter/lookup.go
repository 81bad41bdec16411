package filter

import (
	"bufio"
	"context"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Files of names, and the limit of a host lookup.
var (
	protocolsFile = "/etc/protocols"
	networksFile  = "/etc/networks"
	ethersFile    = "/etc/ethers"
)

const lookupTimeout = 5 * time.Second

// hostNamed returns the addresses of a host from the resolver of this machine, each once.
func hostNamed(name string) ([]netip.Addr, error) {
	ctx, end := context.WithTimeout(context.Background(), lookupTimeout)
	defer end()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	for i := range found {
		found[i] = found[i].Unmap().WithZone("")
	}
	slices.SortFunc(found, netip.Addr.Compare)
	return slices.Compact(found), err
}

// isHostName distinguishes host names from mistaken numbers.
func isHostName(text string) bool {
	return !strings.ContainsAny(text, ":/") && strings.ContainsFunc(text, func(r rune) bool { return r < 0x80 && isLetter(byte(r)) }) &&
		!strings.HasPrefix(text, "0x")
}

// fields calls each for the lines of a file of names, without comments. A missing file is empty.
func fields(file string, each func([]string) bool) {
	f, err := os.Open(file)
	if err != nil {
		return
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		line, _, _ := strings.Cut(s.Text(), "#")
		if all := strings.Fields(line); len(all) > 1 && each(all) {
			return
		}
	}
}

// protocolNamed returns the number of an IP protocol, as getprotobyname(3) does.
func protocolNamed(name string) (number int, ok bool) {
	fields(protocolsFile, func(f []string) bool {
		n, err := strconv.ParseUint(f[1], 10, 8)
		if ok = err == nil && (f[0] == name || slices.Contains(f[2:], name)); ok {
			number = int(n)
		}
		return ok
	})
	return number, ok
}

// networkNamed returns the address of a network, as getnetbyname(3) does.
func networkNamed(name string) (address uint32, ok bool) {
	fields(networksFile, func(f []string) bool {
		if f[0] == name || slices.Contains(f[2:], name) {
			address, _, ok = parseIPv4(f[1])
		}
		return ok
	})
	return address, ok
}

// etherNamed returns the Ethernet address of a host, as ether_hostton(3) does.
func etherNamed(name string) (mac [6]byte, ok bool) {
	fields(ethersFile, func(f []string) bool {
		if f[1] == name {
			mac, ok = parseMAC(f[0])
		}
		return ok
	})
	return mac, ok
}
