package bpf

import (
	"math/rand/v2"
	"testing"
)

// compareReference runs the loaded filter and the reference over all packets.
func compareReference(t *testing.T, text string, packets [][]byte) (accepted int) {
	t.Helper()
	e := mustParse(t, text)
	p := mustLoad(t, Config{Filter: e})
	defer p.Close()
	for _, packet := range packets {
		f := examine(packet)
		got, want := accepts(t, p, packet), f.matches(e.String())
		if got != want {
			t.Fatalf("%q (%s): the program says %v, the reference %v, of\n%x\n%+v", text, e, got, want, packet, f)
		}
		if got {
			accepted++
		}
	}
	return accepted
}

func TestFilterMeansWhatTheReferenceSays(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var packets [][]byte
	for range 200 {
		packets = append(packets, randomAny(r))
	}
	both := 0
	for range 100 {
		text := randomExpression(r, 3, randomTaggedTest)
		if n := compareReference(t, text, packets); n > 0 && n < len(packets) {
			both++
		}
	}
	if both < 50 {
		t.Errorf("only %d of 100 filters accepted some packets and rejected others: the test shows little", both)
	}
}

func TestEveryExpressionMeansWhatTheReferenceSays(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var packets [][]byte
	for range 500 {
		packets = append(packets, randomAny(r), randomPlain(r))
	}
	for _, text := range expressions {
		if n := compareReference(t, text, packets); n == 0 {
			t.Errorf("%q accepted none of %d packets: the test shows little", text, len(packets))
		}
	}
}

func TestFilterLooksBehindTagsAndExtensions(t *testing.T) {
	mac, from, to := poolMAC[0], "2001:db8::1", "2001:db8::2"
	tcp := ipv4("10.0.0.1", "10.0.0.2", 6, 0, 0, ports(1234, 80))
	six := func(next byte, parts ...[]byte) []byte {
		return ethernet(mac, mac, nil, 0x86dd, ipv6(from, to, next, join(parts...)))
	}
	tag := func(types ...[2]uint16) []byte { return ethernet(mac, mac, types, 0x0800, tcp) }
	for name, c := range map[string]struct {
		packet []byte
		yes    []string
		no     []string
	}{
		"one tag": {tag([2]uint16{0x8100, 5}),
			[]string{"vlan", "vlan 5", "ip", "tcp port 80", "host 10.0.0.2"}, []string{"vlan 6", "vlan 0", "not vlan", "ether proto 0x8100"}},
		"service tag": {tag([2]uint16{0x88a8, 5}), []string{"vlan 5 and tcp dst port 80"}, []string{"vlan 80"}},
		"QinQ": {tag([2]uint16{0x88a8, 5}, [2]uint16{0x8100, 6}),
			[]string{"vlan 5", "vlan 6", "vlan 5 and vlan 6", "tcp port 80"}, []string{"vlan 7", "vlan 0"}},
		"old QinQ":      {tag([2]uint16{0x9100, 5}, [2]uint16{0x9100, 0}), []string{"vlan 5", "vlan 0", "tcp"}, []string{"vlan 7"}},
		"third tag":     {tag([2]uint16{0x8100, 5}, [2]uint16{0x8100, 6}, [2]uint16{0x8100, 7}), []string{"vlan 5", "vlan 6", "ether proto 0x8100"}, []string{"vlan 7", "ip", "tcp"}},
		"hop by hop":    {six(0, option(6, 0), ports(1, 80)), []string{"tcp port 80", "proto 6", "ip6"}, []string{"proto 0", "udp", "icmp6"}},
		"long routing":  {six(43, option(17, 20), ports(53, 1)), []string{"udp src port 53"}, []string{"dst port 53", "proto 43"}},
		"three headers": {six(0, option(43, 1), option(60, 0), option(132, 2), ports(9, 10)), []string{"sctp port 9", "dst port 10"}, []string{"tcp"}},
		"auth":          {six(51, auth(6, 4), ports(1, 443)), []string{"tcp dst port 443"}, []string{"proto 51"}},
		"first fragment": {six(44, fragment6(17, 0, true), ports(53, 1)),
			[]string{"udp port 53"}, []string{"proto 44"}},
		"later fragment": {six(44, fragment6(17, 100, false), ports(53, 1)),
			[]string{"udp", "not port 53", "host " + from}, []string{"udp port 53", "portrange 0-65535"}},
		"eight headers": {six(60, option(60, 0), option(60, 0), option(60, 0), option(60, 0), option(60, 0), option(60, 0), option(60, 0), option(6, 0), ports(1, 80)),
			[]string{"tcp port 80"}, nil},
		"nine headers": {six(60, option(60, 0), option(60, 0), option(60, 0), option(60, 0), option(60, 0), option(60, 0), option(60, 0), option(60, 0), option(6, 0), ports(1, 80)),
			[]string{"ip6", "host " + from}, []string{"tcp", "port 80", "proto 60"}},
		"IPv4 later fragment": {ethernet(mac, mac, nil, 0x0800, ipv4("10.0.0.1", "10.0.0.2", 17, 0, 0x2001, ports(53, 53))),
			[]string{"udp", "not port 53"}, []string{"port 53"}},
		"IPv4 options": {ethernet(mac, mac, nil, 0x0800, ipv4("10.0.0.1", "10.0.0.2", 17, 10, 0x2000, ports(53, 54))),
			[]string{"udp src port 53", "dst port 54"}, nil},
		"cut in the ports":   {ethernet(mac, mac, nil, 0x0800, tcp[:22]), []string{"tcp", "host 10.0.0.1"}, []string{"port 80", "portrange 0-65535"}},
		"cut in the address": {ethernet(mac, mac, nil, 0x0800, tcp[:18]), []string{"ip", "not tcp"}, []string{"net 0.0.0.0/0", "host 0.0.0.0"}},
		"cut in the tag":     {tag([2]uint16{0x8100, 5})[:16], []string{"not vlan", "ether proto 0x8100"}, []string{"vlan 5"}},
		"Ethernet alone":     {ethernet(mac, mac, nil, 0x0806, nil), []string{"arp", "ether src " + "02:00:00:00:00:01"}, []string{"net 0.0.0.0/0"}},
		"header too short": {ethernet(mac, mac, nil, 0x0800, append([]byte{0x44}, tcp[1:]...)),
			[]string{"tcp", "host 10.0.0.1"}, []string{"port 80", "port 1234"}},
		"IPv4 in IPv6 clothes": {six(6, ports(1, 2)), []string{"not net 0.0.0.0/0", "net ::/0"}, []string{"ip", "host 32.1.13.184"}},
	} {
		t.Run(name, func(t *testing.T) {
			for i, texts := range [][]string{c.no, c.yes} {
				for _, text := range texts {
					p := mustLoad(t, Config{Filter: mustParse(t, text)})
					if accepts(t, p, c.packet) != (i == 1) {
						t.Errorf("%q must be %v of %x", text, i == 1, c.packet)
					}
				}
			}
		})
	}
}
