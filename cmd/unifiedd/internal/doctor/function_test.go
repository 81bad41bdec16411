package doctor

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/netdev"
	"github.com/unifiedd/unifiedd/internal/sriov"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestFunction: what the PF does not allow a VF is a warning if a flow wants it, and is said in any case.
func TestFunction(t *testing.T) {
	idle := card{LinkAttrs: &netlink.LinkAttrs{Name: "vf0"}, bad: Warn}
	used := idle
	used.bad, used.hasFlow, used.flow = Fail, true, config.NewFlow("cap")
	used.flow.From.Promiscuous = true
	modest := used
	modest.flow.From.Promiscuous = false
	strict := sriov.Function{Number: 1, Bus: "0000:02:00.0", PF: "pf0", Policy: sriov.Policy{Number: 1, Trust: sriov.Off, Spoof: sriov.On, VLAN: 5, QoS: 2, Disabled: true}}
	loose := sriov.Function{Number: 1, Bus: "0000:02:00.0", PF: "pf0", Policy: sriov.Policy{Number: 1, Trust: sriov.On, Spoof: sriov.Off, MaxRate: 100}}
	silent := sriov.Function{PF: "pf0"}

	expect(t, "link, idle", idle.virtual(strict), Warn, "ip link set dev pf0 vf 1 state auto")
	expect(t, "link, used", used.virtual(strict), Fail, "VF 1 of pf0 (0000:02:00.0), which keeps its link down")
	expect(t, "rate", used.virtual(loose), OK, "lets it send 100 Mbit/s")
	expect(t, "untrusted, idle", idle.trust(strict), OK, "packets for other hosts do not arrive")
	expect(t, "untrusted, used", used.trust(strict), Warn, "ip link set dev pf0 vf 1 trust on")
	expect(t, "untrusted, not promiscuous", modest.trust(strict), OK, "off")
	expect(t, "trusted", used.trust(loose), OK, "on")
	expect(t, "not told", used.trust(silent), Unknown, "pf0")
	expect(t, "checked, idle", used.spoof(strict, ""), OK, "another source address")
	expect(t, "checked, replay", idle.spoof(strict, "again"), Warn, "ip link set dev pf0 vf 1 spoofchk off")
	expect(t, "not checked", idle.spoof(loose, "again"), OK, "off")
	expect(t, "check not told", idle.spoof(silent, "again"), Unknown, "pf0")
	expect(t, "VLAN, idle", idle.vlan(strict), OK, "VLAN 5, priority 2")
	expect(t, "VLAN, used", used.vlan(strict), Warn, "flow cap sees neither the tag")
	expect(t, "no VLAN", used.vlan(loose), OK, "none")
}

// TestBonded: a bond and its slaves are named, and a flow that would take LACP's packets is warned of.
func TestBonded(t *testing.T) {
	over := card{LinkAttrs: &netlink.LinkAttrs{Name: "bond0"}, stack: netdev.Stack{Bond: true, Mode: "802.3ad", Below: []string{"e1", "e2"}}}
	expect(t, "bond", over.bonded()[0], Warn, "mode 802.3ad: the program runs in generic mode")
	expect(t, "bond", over.bonded()[0], Warn, "use e1, e2 below it")
	over.stack.Below = nil
	expect(t, "bond without slaves", over.bonded()[0], Warn, "add slaves")

	lacp := netlink.NewLinkBond(netlink.LinkAttrs{Name: "bond0"})
	lacp.Mode = netlink.BOND_MODE_802_3AD
	slave := card{LinkAttrs: &netlink.LinkAttrs{Name: "e1"}, bond: lacp}
	expect(t, "slave", slave.bonded()[0], OK, "slave of bond0 (mode 802.3ad)")
	slave.hasFlow, slave.flow = true, config.NewFlow("cap")
	expect(t, "slave, all", slave.bonded()[0], Warn, "not ether proto 0x8809")
	slave.flow.From.Filter = "not ether proto 0x8809"
	expect(t, "slave, filtered", slave.bonded()[0], OK, "before the bond does")
	if c := (card{}).bonded(); c != nil {
		t.Errorf("a card: %+v", c)
	}
}

// TestMacvlan: the remedies for a macvlan name the interface below it.
func TestMacvlan(t *testing.T) {
	p := testenv.NewPair(t, testenv.PairOptions{})
	p.A.Run(t, "ip", "link", "add", "over0", "link", p.A.Ifname, "type", "macvlan", "mode", "bridge")
	p.A.Run(t, "ip", "link", "set", "over0", "up")
	var r *Report
	p.A.Do(t, func() { r = Examine(Options{Interfaces: []string{"over0"}}) })
	subject := "interface over0"
	expect(t, "state", of(t, r, subject, "state"), OK, "driver macvlan")
	expect(t, "native XDP", of(t, r, subject, "native XDP"), Warn, "use "+p.A.Ifname+" below it")
	expect(t, "zero copy", of(t, r, subject, "zero copy"), Warn, "use "+p.A.Ifname+" below it, or live with one copy")
}
