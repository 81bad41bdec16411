package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/dcb"
	"github.com/unifiedd/unifiedd/rdma/providers"
)

// priority compares the class of a flow with what the interface of its RDMA device does with priorities.
func priority(name, device string, c config.Class) Check {
	iface, soft := providers.Soft(device)
	if !soft {
		iface = interfaceOf(device)
	}
	if iface == "" {
		return unknown(name, "the network interface of %s is not known", device)
	}
	s, err := dcb.Get(iface)
	switch {
	case errors.Is(err, dcb.ErrNotSupported):
		return ok(name, "%s: %v: what the class means is decided on the way", iface, err)
	case err != nil:
		return unknown(name, "%v", err)
	}
	return judgePriority(name, iface, c, s)
}

// interfaceOf returns the network interface of a device's first port; empty: none.
func interfaceOf(device string) string {
	name, _ := os.ReadFile(filepath.Join("/sys/class/infiniband", device, "ports/1/gid_attrs/ndevs/0")) // InfiniBand has none
	return strings.TrimSpace(string(name))
}

// judgePriority says which priority the interface gives packets of a class, and whether the link may pause it.
func judgePriority(name, iface string, c config.Class, s dcb.Settings) Check {
	dscp := uint8(c.TrafficClass >> 2)
	mapped := int(s.DSCP[dscp])
	switch {
	case s.Known && !s.TrustsDSCP && c.TrafficClass != 0 && c.Priority == 0:
		return warn(name, "%s does not trust DSCPs: packets without a VLAN's tag have priority 0", iface).
			with("dcb apptrust set dev %s order dscp, or configure a priority and a VLAN", iface)
	case c.Priority != 0 && c.TrafficClass != 0 && mapped != c.Priority:
		return warn(name, "%s maps DSCP %d to priority %d, and the flow has priority %d", iface, dscp, mapped, c.Priority).
			with("dcb app add dev %s dscp-prio %d:%d", iface, dscp, c.Priority)
	}
	p := c.Priority
	if p == 0 {
		p = mapped
	}
	if s.PFC>>p&1 == 0 {
		return ok(name, "%s: priority %d, which the link does not pause (PFC: %s)", iface, p, priorities(s.PFC))
	}
	return ok(name, "%s: priority %d, which the link pauses (PFC)", iface, p)
}

// priorities lists the bits of PFC.
func priorities(bits uint8) string {
	var all []string
	for i := range 8 {
		if bits>>i&1 != 0 {
			all = append(all, fmt.Sprint(i))
		}
	}
	if all == nil {
		return "none"
	}
	return strings.Join(all, ", ")
}
