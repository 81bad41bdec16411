package doctor

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestFunctions: the doctor names the physical function of a virtual one and what that allows it, and in a namespace
// without the physical function says that it is not told.
func TestFunctions(t *testing.T) {
	labenv.Guest(t)
	all := labenv.Functions(t, 2)
	labenv.Policy(t, 1, "trust", "off")
	labenv.Policy(t, 1, "spoofchk", "on")
	labenv.Policy(t, 1, "vlan", "5", "qos", "2")
	labenv.SetLink(t, "vf0", true)
	labenv.SetLink(t, "vf1", true)
	r := Examine(Options{Interfaces: []string{"igb0", "vf0", "vf1"}})
	expect(t, "PF", of(t, r, "interface igb0", "virtual functions"), OK, "2, VF 0 is vf0, VF 1 is vf1")
	expect(t, "VF", of(t, r, "interface vf0", "virtual function"), OK, "VF 0 of igb0 (")
	expect(t, "trusted", of(t, r, "interface vf0", "trust"), OK, "on")
	expect(t, "not checked", of(t, r, "interface vf0", "spoof check"), OK, "off")
	expect(t, "no VLAN", of(t, r, "interface vf0", "VLAN policy"), OK, "none")
	expect(t, "not trusted", of(t, r, "interface vf1", "trust"), OK, "off")
	expect(t, "checked", of(t, r, "interface vf1", "spoof check"), OK, "on")
	expect(t, "VLAN", of(t, r, "interface vf1", "VLAN policy"), OK, "VLAN 5, priority 2")
	if labenv.Kernel(t) != labenv.Linux61 { // which does not tell
		expect(t, "native XDP", of(t, r, "interface vf1", "native XDP"), Warn, "the driver has none")
	}
	labenv.SetLink(t, "vf0", false)
	labenv.SetLink(t, "vf1", false)

	away := testenv.NewNamespace(t)
	all[0].Move(t, away)
	away.Run(t, "ip", "link", "set", all[0].Name, "up")
	away.Do(t, func() { r = Examine(Options{Interfaces: []string{all[0].Name}}) })
	expect(t, "elsewhere", of(t, r, "interface "+all[0].Name, "virtual function"), Unknown, "no interface in this network namespace")
	r = Examine(Options{Interfaces: []string{"igb0"}})
	expect(t, "PF", of(t, r, "interface igb0", "virtual functions"), OK, "2, VF 1 is vf1")
}
