package stage

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/layers"
)

// udp4 and udp6 are packets with 16 bytes of payload.
func udp4(t tester) []byte {
	f := fields{macs: someMACs, ips: [2]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}, proto: layers.IPProtocolUDP, payload: make([]byte, 16)}
	return f.build(t)
}

func udp6(t tester) []byte {
	f := fields{macs: someMACs, ips: [2]netip.Addr{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")}, proto: layers.IPProtocolUDP, payload: make([]byte, 16)}
	return f.build(t)
}

// with overwrites bytes of a packet.
func with(p []byte, at int, b ...byte) []byte {
	copy(p[at:], b)
	return p
}

// insert inserts bytes into a packet.
func insert(p []byte, at int, b ...byte) []byte {
	return bytes.Join([][]byte{p[:at], b, p[at:]}, nil)
}

// TestReasons: a step counts a packet that it does not change by the reason.
func TestReasons(t *testing.T) {
	set4 := Step{Set: &Set{IPDestination: netip.MustParseAddr("10.9.9.9")}}
	set6 := Step{Set: &Set{IPDestination: netip.MustParseAddr("2001:db8::9")}}
	ports := Step{Set: &Set{PortDestination: 9}}
	first := Step{Timestamp: &Timestamp{}}
	arp := with(udp4(t), 12, 8, 6)
	tests := map[string]struct {
		packet []byte
		step   Step
		want   Reason
	}{
		"nothing":                      {nil, Step{Set: &Set{MACSource: someMACs[0]}}, Truncated},
		"tag cut off":                  {with(udp4(t), 12, 0x81, 0)[:17], Step{Set: &Set{VLAN: 5}}, Truncated},
		"no tag":                       {udp4(t), Step{Set: &Set{VLAN: 5}}, Untagged},
		"ARP, address":                 {arp, set4, NotIP},
		"ARP, port":                    {arp, ports, NotIP},
		"ARP, time":                    {arp, first, NotIP},
		"IPv6 for an address of IPv4":  {udp6(t), set4, OtherVersion},
		"IPv4 for an address of IPv6":  {udp4(t), set6, OtherVersion},
		"another version":              {with(udp4(t), 14, 0x55), set4, Malformed},
		"header of 16 bytes":           {with(udp4(t), 14, 0x44), set4, Malformed},
		"total length below header's":  {with(udp4(t), 16, 0, 19), set4, Malformed},
		"ends before UDP's header":     {with(udp4(t), 16, 0, 27), set4, Malformed},
		"options cut off":              {with(with(udp4(t), 16, 0, 99), 14, 0x4f), set4, Truncated},
		"loose source route":           {with(insert(udp4(t), 34, 1, 131, 3, 4), 14, 0x46), set4, Routed},
		"not a route":                  {with(insert(udp4(t), 34, 0, 131, 3, 4), 14, 0x46), set4, Changed},
		"option of length 0":           {with(insert(udp4(t), 34, 7, 0, 3, 4), 14, 0x46), set4, Changed},
		"authenticated":                {with(udp4(t), 23, 51), set4, Authenticated},
		"authenticated, port":          {with(udp4(t), 23, 51), ports, Authenticated},
		"authenticated, time":          {with(udp4(t), 23, 51), first, Authenticated},
		"later fragment":               {with(udp4(t), 20, 0, 1), ports, LaterFragment},
		"later fragment, time":         {with(udp4(t), 20, 0, 1), first, LaterFragment},
		"SCTP":                         {with(udp4(t), 23, 132), ports, NoPorts},
		"TCP, time":                    {with(udp4(t), 23, 6), first, NotUDP},
		"payload too short":            {udp4(t), Step{Timestamp: &Timestamp{Offset: 9}}, ShortPayload},
		"payload in another frame":     {udp4(t)[:50], Step{Timestamp: &Timestamp{Offset: 2}}, OtherFrame},
		"UDP length below its header":  {with(udp4(t), 38, 0, 7), first, Malformed},
		"UDP length ends first":        {with(udp4(t), 38, 0, 15), first, ShortPayload},
		"last bytes":                   {udp4(t), Step{Timestamp: &Timestamp{Offset: 8}}, Changed},
		"IPv6 cut off":                 {udp6(t)[:50], set6, Truncated},
		"IPv6 with another version":    {with(udp6(t), 14, 0x40), set6, Malformed},
		"IPv6, routing header":         {with(insert(udp6(t), 54, 17, 0, 0, 1, 0, 0, 0, 0), 20, 43), set6, Routed},
		"IPv6, route has come to end":  {with(insert(with(udp6(t), 18, 0, 32), 54, 17, 0, 0, 0, 0, 0, 0, 0), 20, 43), set6, Changed},
		"IPv6, authenticated":          {with(insert(with(udp6(t), 18, 0, 32), 54, 17, 0, 0, 0, 0, 0, 0, 0), 20, 51), set6, Authenticated},
		"IPv6, later fragment":         {with(insert(with(udp6(t), 18, 0, 32), 54, 17, 0, 0, 8, 0, 0, 0, 0), 20, 44), ports, LaterFragment},
		"IPv6, first fragment":         {with(insert(with(udp6(t), 18, 0, 32), 54, 17, 0, 0, 1, 0, 0, 0, 0), 20, 44), ports, Changed},
		"IPv6, header behind the end":  {with(udp6(t), 18, 0, 4, 0), set6, Malformed},
		"IPv6, headers without end":    {with(udp6(t), 18, 0, 4, 0, 0), set6, Malformed},
		"IPv6, header cut off":         {with(udp6(t), 20, 0)[:60], set6, Truncated},
		"IPv6, nothing behind":         {with(udp6(t), 20, 59), set6, Changed},
		"IPv6, jumbogram's length":     {with(udp6(t), 18, 0, 0), set6, Changed},
		"five tags":                    {insert(udp4(t), 12, bytes.Repeat([]byte{0x81, 0, 0, 1}, 5)...), set4, NotIP},
		"four tags":                    {insert(udp4(t), 12, bytes.Repeat([]byte{0x88, 0xa8, 0, 1}, 4)...), set4, Changed},
		"neither version in EtherType": {with(udp6(t), 12, 0x08, 0x00), set4, Malformed},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := mustChain(t, test.step)
			before := bytes.Clone(test.packet)
			c.Apply(test.packet, 42)
			want := StepStats{Kind: c.steps[0].kind.String(), Left: map[string]uint64{test.want.String(): 1}}
			if test.want == Changed {
				want.Changed, want.Left = 1, map[string]uint64{}
			}
			if diff := cmp.Diff([]StepStats{want}, c.Stats()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if changed := !bytes.Equal(before, test.packet); changed != (test.want == Changed) {
				t.Errorf("changed is %v", changed)
			}
		})
	}
}

// TestSome: a step sets the fields that it can set, even if it cannot set others.
func TestSome(t *testing.T) {
	c := mustChain(t, Step{Set: &Set{MACSource: someMACs[1], VLAN: 9, IPSource: netip.MustParseAddr("10.9.9.9"), PortSource: 3}})
	p := with(udp6(t), 6, 0, 0, 0, 0, 0, 0)
	c.Apply(p, 0)
	if !bytes.Equal(p[6:12], someMACs[1]) || be.Uint16(p[54:]) != 3 {
		t.Errorf("the packet is %x", p)
	}
	want := []StepStats{{Kind: "set", Changed: 1, Left: map[string]uint64{"untagged": 1, "other_version": 1}}}
	if diff := cmp.Diff(want, c.Stats()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTag: setting the VLAN keeps priority and drop eligibility.
func TestTag(t *testing.T) {
	p := insert(udp4(t), 12, 0x81, 0, 0xf0, 1)
	mustChain(t, Step{Set: &Set{VLAN: 0xabc}}).Apply(p, 0)
	if !bytes.Equal(p[12:16], []byte{0x81, 0, 0xfa, 0xbc}) {
		t.Errorf("the tag is %x", p[12:16])
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for r := range reasons {
		seen[r.String()] = true
	}
	if len(seen) != int(reasons) || seen[""] || reasons.String() != "unknown" {
		t.Errorf("the names are %v", seen)
	}
}

// TestRefused: New refuses steps that mean nothing.
func TestRefused(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::1")
	tests := map[string]Step{
		"nothing":        {},
		"two":            {Sequence: &Sequence{}, Timestamp: &Timestamp{}},
		"nothing is set": {Set: &Set{}},
		"short address":  {Set: &Set{MACSource: someMACs[0][:5]}},
		"VLAN":           {Set: &Set{VLAN: 4095}},
		"port":           {Set: &Set{PortSource: 65536}},
		"negative port":  {Set: &Set{PortDestination: -1}},
		"two versions":   {Set: &Set{IPSource: v4, IPDestination: v6}},
		"mapped":         {Set: &Set{IPSource: netip.AddrFrom16(v4.As16())}},
		"offset":         {Sequence: &Sequence{Offset: -1}},
		"large offset":   {Timestamp: &Timestamp{Offset: maxOffset + 1}},
		"two offsets":    {Set: &Set{VLAN: 1}, Sequence: &Sequence{Offset: 5}},
	}
	for name, step := range tests {
		if c, err := New([]Step{{Sequence: &Sequence{}}, step}); err == nil || c != nil {
			t.Errorf("%s: got %v, %v", name, c, err)
		} else if !bytes.HasPrefix([]byte(err.Error()), []byte("stage 2: ")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
