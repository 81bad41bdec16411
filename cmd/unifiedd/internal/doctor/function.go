package doctor

import (
	"errors"
	"fmt"
	"strings"

	"github.com/unifiedd/unifiedd/internal/sriov"
)

// functions checks the virtual functions (VFs) of a physical one (PF), and of a VF what its PF allows.
func (c card) functions(n needs) []Check {
	f, err := sriov.Of(c.bus)
	switch {
	case errors.Is(err, sriov.ErrNotVF):
		return c.physical()
	case err != nil:
		return []Check{unknown("virtual function", "%v", err)}
	case f.PF == "":
		return []Check{unknown("virtual function", "VF %d of the card at %s, whose physical function has no interface in this network namespace: "+
			"whether the VF is trusted, is checked for spoofing or has a VLAN is not told here", f.Number, f.Bus).
			with("look in the host's namespace: ip link show, for vf %d", f.Number)}
	}
	return []Check{c.virtual(f), c.trust(f), c.spoof(f, n.replaysTo(c.Name)), c.vlan(f)}
}

// replaysTo returns the name of the flow that sends the packets of a file to the interface; empty: none does.
func (n needs) replaysTo(iface string) string {
	for _, f := range n.Flows {
		if f.To.Interface == iface {
			return f.Name
		}
	}
	return ""
}

// physical lists the VFs of a PF. It returns nothing for other interfaces.
func (c card) physical() []Check {
	const name = "virtual functions"
	policies, err := sriov.Policies(c.Index)
	if err != nil {
		return []Check{unknown(name, "%v", err)}
	}
	if len(policies) == 0 {
		return nil
	}
	interfaces, parts := sriov.Interfaces(c.bus), []string(nil)
	for _, p := range policies {
		if iface := interfaces[p.Number]; iface != "" {
			parts = append(parts, fmt.Sprintf("VF %d is %s", p.Number, iface))
		}
	}
	detail := fmt.Sprintf("%d", len(policies))
	if len(parts) > 0 {
		detail += ", " + strings.Join(parts, ", ")
	}
	return []Check{ok(name, "%s; the card switches their packets: no flow on %s sees those", detail, c.Name)}
}

// virtual names the PF, and says whether it lets the VF have a link.
func (c card) virtual(f sriov.Function) Check {
	const name = "virtual function"
	detail := fmt.Sprintf("VF %d of %s (%s)", f.Number, f.PF, f.Bus)
	if f.Policy.Disabled {
		return ok(name, "%s, which keeps its link down", detail).as(c.bad).with("ip link set dev %s vf %d state auto", f.PF, f.Number)
	}
	if f.Policy.MaxRate != 0 {
		return ok(name, "%s, which lets it send %d Mbit/s", detail, f.Policy.MaxRate)
	}
	return ok(name, "%s", detail)
}

// trust says whether the VF may be promiscuous.
func (c card) trust(f sriov.Function) Check {
	const name = "trust"
	switch {
	case f.Policy.Trust == sriov.Unknown:
		return unknown(name, "the driver of %s does not tell", f.PF)
	case f.Policy.Trust == sriov.On:
		return ok(name, "on: %s lets it have promiscuous mode, as far as its driver can", f.PF)
	case c.hasFlow && c.flow.From.Promiscuous:
		return warn(name, "off: flow %s gets packets for the address of %s, broadcasts and its multicast groups, and nothing for other hosts", c.flow.Name, c.Name).
			with("ip link set dev %s vf %d trust on, or promiscuous: false if that is all it wants", f.PF, f.Number)
	}
	return ok(name, "off: no promiscuous mode; packets for other hosts do not arrive")
}

// spoof says whether the card lets the VF send packets of other hosts. replay is the flow that does.
func (c card) spoof(f sriov.Function, replay string) Check {
	const name = "spoof check"
	switch {
	case f.Policy.Spoof == sriov.Unknown:
		return unknown(name, "the driver of %s does not tell", f.PF)
	case f.Policy.Spoof == sriov.Off:
		return ok(name, "off: it may send from any address")
	case replay != "":
		return warn(name, "on: the card drops what flow %s sends with another source address than that of %s", replay, c.Name).
			with("ip link set dev %s vf %d spoofchk off", f.PF, f.Number)
	}
	return ok(name, "on: the card drops what is sent with another source address, as replays do")
}

// vlan says which VLAN the PF puts the VF into.
func (c card) vlan(f sriov.Function) Check {
	const name = "VLAN policy"
	p := f.Policy
	if p.VLAN == 0 {
		return ok(name, "none: tags are the VF's own")
	}
	detail := fmt.Sprintf("VLAN %d, priority %d: the card adds that tag to what is sent and removes it from what arrives", p.VLAN, p.QoS)
	if c.hasFlow {
		return warn(name, "%s; flow %s sees neither the tag nor other VLANs", detail, c.flow.Name).
			with("ip link set dev %s vf %d vlan 0, if it shall see tags", f.PF, f.Number)
	}
	return ok(name, "%s", detail)
}
