package stage

import (
	"net"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"
)

// fields describe a packet of a test. A packet that a Set changes must equal the packet that is built from
// the changed fields, with all checksums computed again.
type fields struct {
	tags       int
	vlan       int
	macs       [2]net.HardwareAddr // source, destination
	ips        [2]netip.Addr
	options    int // words of IPv4 options, extension headers of IPv6
	proto      layers.IPProtocol
	ports      [2]uint16
	payload    []byte
	noChecksum bool // of UDP
}

// drawFields draws a packet.
func drawFields(t *rapid.T, protos ...layers.IPProtocol) *fields {
	v4 := rapid.Bool().Draw(t, "v4")
	f := &fields{
		tags:    rapid.IntRange(0, 2).Draw(t, "tags"),
		vlan:    rapid.IntRange(0, 4095).Draw(t, "vlan"),
		macs:    [2]net.HardwareAddr{drawMAC(t), drawMAC(t)},
		ips:     [2]netip.Addr{drawIP(t, v4), drawIP(t, v4)},
		options: rapid.IntRange(0, 3).Draw(t, "options"),
		proto:   rapid.SampledFrom(protos).Draw(t, "proto"),
		ports:   [2]uint16{rapid.Uint16().Draw(t, "source"), rapid.Uint16().Draw(t, "destination")},
		payload: rapid.SliceOfN(rapid.SampledFrom([]byte{0, 0, 1, 0x7f, 0x80, 0xff}), 0, 60).Draw(t, "payload"),
	}
	if v4 && f.proto == layers.IPProtocolICMPv6 {
		f.proto = layers.IPProtocolICMPv4
	}
	return f
}

func drawMAC(t *rapid.T) net.HardwareAddr { return rapid.SliceOfN(rapid.Byte(), 6, 6).Draw(t, "mac") }

// drawIP draws addresses that are close to all ones and all zeroes more often than others.
func drawIP(t *rapid.T, v4 bool) netip.Addr {
	b := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 0xff, 0x12, 0xfe, 1}), 16, 16).Draw(t, "ip")
	if v4 {
		return netip.AddrFrom4([4]byte(b))
	}
	b[0] = 0x20 // nothing which maps IPv4
	return netip.AddrFrom16([16]byte(b))
}

// tester is what *testing.T and *rapid.T have in common.
type tester interface {
	Helper()
	Fatal(args ...any)
}

// build makes the packet with gopacket.
func (f *fields) build(t tester) []byte {
	t.Helper()
	stack := f.link()
	network, above := f.network()
	stack = append(append(stack, network...), above...)
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, stack...); err != nil {
		t.Fatal(err)
	}
	p := append([]byte(nil), b.Bytes()...)
	if f.noChecksum && f.proto == layers.IPProtocolUDP {
		v := look(p)
		copy(p[v.transport+6:], []byte{0, 0})
	}
	return p
}

// etherType returns the EtherType of the packet's version of IP.
func (f *fields) etherType() layers.EthernetType {
	if f.ips[0].Is4() {
		return layers.EthernetTypeIPv4
	}
	return layers.EthernetTypeIPv6
}

func (f *fields) link() []gopacket.SerializableLayer {
	types := []layers.EthernetType{f.etherType()}
	for range f.tags {
		types = append(types, layers.EthernetTypeDot1Q)
	}
	all := []gopacket.SerializableLayer{&layers.Ethernet{SrcMAC: f.macs[0], DstMAC: f.macs[1], EthernetType: types[f.tags]}}
	for i := f.tags - 1; i >= 0; i-- {
		tag := &layers.Dot1Q{Priority: 5, VLANIdentifier: 7, Type: types[i]}
		if i == f.tags-1 {
			tag.VLANIdentifier = uint16(f.vlan)
		}
		all = append(all, tag)
	}
	return all
}

// network returns IP with its options or extension headers, and the layers above.
func (f *fields) network() (all, above []gopacket.SerializableLayer) {
	if f.ips[0].Is4() {
		ip := &layers.IPv4{
			Version: 4, TTL: 9, TOS: 3, Id: 77, Protocol: f.proto, SrcIP: f.ips[0].AsSlice(), DstIP: f.ips[1].AsSlice(),
		}
		for range f.options {
			ip.Options = append(ip.Options, layers.IPv4Option{OptionType: 68, OptionLength: 4, OptionData: []byte{5, 0}})
		}
		return []gopacket.SerializableLayer{ip}, f.transport(ip)
	}
	ip := &layers.IPv6{Version: 6, HopLimit: 9, FlowLabel: 1234, NextHeader: f.proto, SrcIP: f.ips[0].AsSlice(), DstIP: f.ips[1].AsSlice()}
	all = []gopacket.SerializableLayer{ip}
	for i := range f.options {
		all = append(all, f.extension(i == f.options-1))
		ip.NextHeader = layers.IPProtocolIPv6Destination
	}
	return all, f.transport(ip)
}

// extension is a header of destination options.
func (f *fields) extension(last bool) gopacket.SerializableLayer {
	d := &layers.IPv6Destination{Options: []*layers.IPv6DestinationOption{{OptionType: 1, OptionData: make([]byte, 4), OptionLength: 4, ActualLength: 6}}}
	d.NextHeader = layers.IPProtocolIPv6Destination
	if last {
		d.NextHeader = f.proto
	}
	return d
}

func (f *fields) transport(ip gopacket.NetworkLayer) []gopacket.SerializableLayer {
	payload := gopacket.Payload(f.payload)
	switch f.proto {
	case layers.IPProtocolTCP:
		l := &layers.TCP{SrcPort: layers.TCPPort(f.ports[0]), DstPort: layers.TCPPort(f.ports[1]), Seq: 5, Window: 100, ACK: true}
		_ = l.SetNetworkLayerForChecksum(ip)
		return []gopacket.SerializableLayer{l, payload}
	case layers.IPProtocolUDP:
		l := &layers.UDP{SrcPort: layers.UDPPort(f.ports[0]), DstPort: layers.UDPPort(f.ports[1])}
		_ = l.SetNetworkLayerForChecksum(ip)
		return []gopacket.SerializableLayer{l, payload}
	case layers.IPProtocolICMPv6:
		l := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(128, 0)}
		_ = l.SetNetworkLayerForChecksum(ip)
		return []gopacket.SerializableLayer{l, payload}
	}
	return []gopacket.SerializableLayer{payload}
}
