package providers

import (
	"fmt"
	"strings"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/rdma/verbs"
)

// SoftPrefix begins the name of a device that is RoCE v2 in software on the interface behind it.
const SoftPrefix = "roce:"

// Soft is the interface of a device with RoCE in software, and whether the name is that of one.
func Soft(name string) (iface string, is bool) { return strings.CutPrefix(name, SoftPrefix) }

// Open opens a device. The configuration is for RoCE in software alone, which has its queues in
// the region named there. The device is the caller's to close, before the region.
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
