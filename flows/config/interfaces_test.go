package config

import (
	"maps"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/netdev"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// machine has interfaces of several types, some with alternative names.
func machine(name string) (netdev.Device, error) {
	first, ok := map[string]string{
		"eth1": "eth1", "alt1": "eth1", "an-alternative-name-of-the-card": "eth1", "eth2": "eth2", "tun0": "tun0", "vpn-of-the-office": "tun0", "wg0": "wg0", "gre0": "gre0",
	}[name]
	if !ok {
		return netdev.Device{}, netdev.ErrNotFound
	}
	kinds := map[string][2]string{"eth1": {"ether", "device"}, "eth2": {"ether", "device"}, "tun0": {"none", "tuntap"}, "wg0": {"none", "wireguard"}, "gre0": {"gre", "gre"}}[first]
	return netdev.Of(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: first, EncapType: kinds[0]}, LinkType: kinds[1]}), nil
}

// TestInterfaces: the validator compares interfaces by identity, not by name, and refuses
// interfaces whose packets do not begin as the flow expects.
func TestInterfaces(t *testing.T) {
	for name, c := range map[string]struct {
		flows []string // source and sink of each
		says  string   // expected error; empty: none
	}{
		"long":             {[]string{"from: {interface: an-alternative-name-of-the-card}, to: {file: /tmp/a}"}, ""},
		"shared":           {[]string{"from: {interface: eth1, filter: udp}, to: {file: /tmp/a}", "from: {interface: alt1, filter: tcp}, to: {file: /tmp/b}"}, ""},
		"shared, queues":   {[]string{"from: {interface: eth1, filter: udp}, to: {file: /tmp/a}", "from: {interface: alt1, filter: tcp, queues: [0]}, to: {file: /tmp/b}"}, "from.queues"},
		"all, then one":    {[]string{"from: {interface: alt1}, to: {file: /tmp/a}", "from: {interface: eth1, filter: tcp}, to: {file: /tmp/b}"}, "would get none"},
		"mirrors":          {[]string{"from: {interface: eth1, mirror: both}, to: {file: /tmp/a}", "from: {interface: alt1, mirror: both}, to: {file: /tmp/b}"}, ""},
		"one twice":        {[]string{"from: {interfaces: [eth1, alt1]}, to: {file: /tmp/a}"}, "taken already"},
		"sent to twice":    {[]string{"from: {file: /a.pcap}, to: {interface: eth1}", "from: {file: /b.pcap}, to: {interface: alt1}"}, "taken already"},
		"sent to and from": {[]string{"from: {interface: alt1, filter: udp}, to: {file: /tmp/a}", "from: {file: /b.pcap}, to: {interface: eth1}"}, "taken already"},
		"RoCE":             {[]string{"from: {interface: alt1, filter: udp}, to: {file: /tmp/a}", `from: {rdma: "roce:eth1", listen: "127.0.0.1:7471"}, to: {file: /tmp/b}`}, "RoCE's UDP port"},
		"RoCE by altname":  {[]string{"from: {interface: eth1, filter: udp}, to: {file: /tmp/a}", `from: {rdma: "roce:an-alternative-name-of-the-card", listen: "127.0.0.1:7471"}, to: {file: /tmp/b}`}, "RoCE's UDP port"},
		"not there":        {[]string{"from: {interface: nowhere-near-this-machine-0, filter: udp}, to: {file: /tmp/a}", "from: {interface: nowhere-near-this-machine-0, queues: [0]}, to: {file: /tmp/b}"}, "from.queues"},

		"raw":               {[]string{"from: {interface: tun0, filter: icmp}, to: {file: /tmp/a}"}, ""},
		"raw, discarded":    {[]string{"from: {interface: wg0}, to: {discard: true}"}, ""},
		"raw to RDMA":       {[]string{`from: {interface: tun0}, to: {rdma: mlx5_0, peers: ["10.0.0.2:7471"]}`}, "a flow to RDMA needs"},
		"raw mirror":        {[]string{"from: {interface: vpn-of-the-office, mirror: both, engine: xdp}, to: {file: /tmp/a}"}, "mirror needs"},
		"raw copies":        {[]string{"from: {interface: vpn-of-the-office, mirror: both}, to: {file: /tmp/a}"}, ""},
		"raw steer":         {[]string{"from: {interface: tun0, filter: udp, queues: [0], steer: require}, to: {file: /tmp/a}"}, "steer needs"},
		"raw RoCE":          {[]string{`from: {rdma: "roce:tun0", listen: "127.0.0.1:7471"}, to: {file: /tmp/b}`}, "RoCE needs"},
		"raw filter":        {[]string{`from: {interface: tun0, filter: "for Ethernet"}, to: {file: /tmp/a}`}, "link type RAW"},
		"raw rule":          {[]string{`from: {interface: tun0, filter: [{name: a, match: "for Ethernet"}]}, to: {file: /tmp/a}`}, "link type RAW"},
		"raw replay":        {[]string{"from: {file: /a.pcap}, to: {interface: tun0}"}, ""},
		"WireGuard replay":  {[]string{"from: {file: /a.pcap}, to: {interface: wg0}"}, "without a protocol"},
		"gre":               {[]string{"from: {interface: gre0}, to: {file: /tmp/a}"}, "gre0 (type gre, gre)"},
		"gre replay":        {[]string{"from: {file: /a.pcap}, to: {interface: gre0}"}, "gre0 (type gre, gre)"},
		"several types":     {[]string{"from: {interfaces: [eth1, tun0]}, to: {file: /tmp/a}"}, "has one link type"},
		"several, one kind": {[]string{"from: {interfaces: [tun0, wg0]}, to: {file: /tmp/a}"}, ""},
	} {
		text := "flows:\n"
		for i, ends := range c.flows {
			text += "  - {name: " + string(rune('a'+i)) + ", " + ends + "}\n"
		}
		_, err := Parse("test.yaml", []byte(text), Options{FindInterface: machine, CheckFilter: forEthernet})
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want it to say %q", name, err, c.says)
		}
	}
}

// forEthernet is a filter language with one expression that is valid for Ethernet only.
func forEthernet(expr string, of linktype.Type) error {
	if expr == "for Ethernet" && of != linktype.Ethernet {
		return wrong("", "no Ethernet in link type %v", of)
	}
	return nil
}

// TestNamed: a Config has the first names of interfaces and records the alternative names from the
// file; another name of the same interface is not a change.
func TestNamed(t *testing.T) {
	parse := func(name string) *Config {
		t.Helper()
		c, err := Parse("test.yaml", []byte("flows:\n  - {name: a, from: {interface: "+name+"}, to: {file: /tmp/a}}\n"), Options{FindInterface: machine})
		testenv.Must(t, err)
		return c
	}
	first, other := parse("eth1"), parse("an-alternative-name-of-the-card")
	if f := other.Flows[0]; f.From.Interface != "eth1" || !maps.Equal(f.Named, map[string]string{"eth1": "an-alternative-name-of-the-card"}) || first.Flows[0].Named != nil {
		t.Errorf("%q, named %v and %v", f.From.Interface, f.Named, first.Flows[0].Named)
	}
	if p := Compare(first, other); !p.Empty() {
		t.Errorf("another name is a change: %+v", p)
	}
}
