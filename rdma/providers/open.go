package providers

import (
	"fmt"
	"strings"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/rdma/verbs"
)

// SoftPrefix begins the name of a device that is RoCE v2 in software. The interface follows it.
const SoftPrefix = "roce:"

// Soft returns the interface of a device with RoCE in software, and whether the name is that of
// such a device.
func Soft(name string) (iface string, is bool) { return strings.CutPrefix(name, SoftPrefix) }

// Open opens a device. The configuration is only for RoCE in software, which takes frames
// from the region that the configuration names. The caller closes the device before the region.
func Open(name string, c roce.Config) (rdma.Device, error) {
	iface, is := Soft(name)
	if !is {
		return verbs.Provider{}.Open(name)
	}
	if iface == "" {
		return nil, fmt.Errorf("open RDMA device %q: it names no interface: %sIFACE, such as %[2]seth1", name, SoftPrefix)
	}
	p, err := roce.NewProvider(c)
	if err != nil {
		return nil, err
	}
	return p.Open(iface)
}
