package wire

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// decoded has all values that this package decodes from a packet.
type decoded struct {
	Envelope
	Header
	headers, payload int
	icrc             uint32 // as an independent decoder prints it: the first byte highest
}

func decode(t *testing.T, frame []byte) (d decoded) {
	t.Helper()
	var m Malformed
	if m := d.Parse(frame, len(frame)); m != WellFormed {
		t.Fatalf("parse: %v", m)
	}
	b := frame[d.Transport:][:d.Length]
	if d.headers, m = d.Decode(b); m != WellFormed {
		t.Fatalf("decode: %v", m)
	}
	if d.payload, m = d.PayloadLen(d.Length); m != WellFormed {
		t.Fatalf("payload: %v", m)
	}
	d.icrc = be.Uint32(b[d.Length-ICRCBytes:])
	return d
}

// row returns the packet's values in the columns of tshark, as the golden files have them.
func (d *decoded) row() map[string]string {
	row := map[string]string{
		"eth.dst": net.HardwareAddr(d.DestinationMAC[:]).String(), "eth.src": net.HardwareAddr(d.SourceMAC[:]).String(),
		"udp.srcport": fmt.Sprint(d.SourcePort), "udp.length": fmt.Sprint(d.Length + udpBytes),
		"infiniband.bth.opcode": fmt.Sprint(uint8(d.Opcode)), "infiniband.bth.padcnt": fmt.Sprint(d.Pad), "infiniband.bth.p_key": fmt.Sprint(d.PKey),
		"infiniband.bth.se": fmt.Sprint(btoi(d.Solicited)), "infiniband.bth.m": fmt.Sprint(btoi(d.MigReq)), "infiniband.bth.a": fmt.Sprint(btoi(d.AckReq)),
		"infiniband.bth.destqp": fmt.Sprintf("0x%06x", d.DestQPN), "infiniband.bth.psn": fmt.Sprint(uint32(d.PSN)),
	}
	if d.Opcode != CNP { // tshark does not name the ICRC of a CNP
		row["infiniband.invariant.crc"] = fmt.Sprintf("0x%08x", d.icrc)
	}
	d.networkRow(row)
	d.extensionRow(row)
	return row
}

func (d *decoded) networkRow(row map[string]string) {
	for _, tag := range d.Tags {
		switch tag.Type {
		case 0x8100:
			row["vlan.id"] = fmt.Sprint(tag.TCI & 0xfff)
		case 0x88a8:
			row["ieee8021ad.id"] = fmt.Sprint(tag.TCI & 0xfff)
		}
	}
	if d.IPv6 {
		row["ipv6.src"], row["ipv6.dst"] = d.Source.String(), d.Destination.String()
		row["ipv6.tclass"], row["ipv6.flow"] = fmt.Sprintf("0x%08x", d.TrafficClass), fmt.Sprintf("0x%06x", d.FlowLabel)
		row["ipv6.hlim"] = fmt.Sprint(d.HopLimit)
		return
	}
	row["ip.src"], row["ip.dst"] = d.Source.String(), d.Destination.String()
	row["ip.dsfield"], row["ip.ttl"] = fmt.Sprintf("0x%02x", d.TrafficClass), fmt.Sprint(d.HopLimit)
}

func (d *decoded) extensionRow(row map[string]string) {
	o := d.Opcode
	if table[o].has(deth) {
		row["infiniband.deth.q_key"], row["infiniband.deth.srcqp"] = fmt.Sprintf("0x%016x", d.QKey), fmt.Sprintf("0x%08x", d.SourceQPN)
	}
	if o.HasRETH() || table[o].has(atomicETH) {
		row["infiniband.reth.va"], row["infiniband.reth.r_key"] = fmt.Sprintf("0x%016x", d.VA), fmt.Sprintf("0x%08x", d.RKey)
	}
	if o.HasRETH() {
		row["infiniband.reth.dmalen"] = fmt.Sprint(d.DMALength)
	}
	if o.HasAETH() {
		row["infiniband.aeth.syndrome"], row["infiniband.aeth.msn"] = fmt.Sprint(uint8(d.Syndrome)), fmt.Sprint(d.MSN)
	}
	if table[o].has(atomicETH) {
		row["infiniband.atomiceth.swapdt"], row["infiniband.atomiceth.cmpdt"] = fmt.Sprint(d.SwapAdd), fmt.Sprint(d.Compare)
	}
	if table[o].has(atomicAck) {
		row["infiniband.atomicacketh.origremdt"] = fmt.Sprint(d.Original)
	}
	if o.HasImmediate() {
		row["infiniband.immdt"] = hex.EncodeToString(d.Immediate[:])
	}
	if o.HasInvalidate() {
		row["infiniband.ieth"] = fmt.Sprintf("%08x", d.Invalidate)
	}
}

// checkRow compares with tshark's line. For a payload that tshark does not recognise as a protocol,
// its length includes the padding.
func (d *decoded) checkRow(t *testing.T, want map[string]string) {
	t.Helper()
	got := d.row()
	for column, w := range want {
		switch column {
		case "frame.number":
		case "data.len":
			if w != "" && w != fmt.Sprint(d.payload+int(d.Pad)) {
				t.Errorf("packet %s: payload %d and %d of padding, want %s", want["frame.number"], d.payload, d.Pad, w)
			}
		default:
			if got[column] != w {
				t.Errorf("packet %s: %s is %q, want %q", want["frame.number"], column, got[column], w)
			}
		}
	}
}

// checkEncode encodes the packet again: the template of its path writes envelope and trailer,
// Encode the header.
func (d *decoded) checkEncode(t *testing.T, frame []byte) {
	t.Helper()
	path := Path{Source: d.Source, Destination: d.Destination, SourceMAC: d.SourceMAC, DestinationMAC: d.DestinationMAC, Tags: d.Tags,
		SourcePort: d.SourcePort, TrafficClass: d.TrafficClass, HopLimit: d.HopLimit, FlowLabel: d.FlowLabel}
	template, err := NewTemplate(&path)
	testenv.Must(t, err)
	b := make([]byte, len(frame))
	n := template.Put(b, be.Uint16(frame[d.Network+4:]), d.Length)
	n += d.Encode(b[n:])
	payload := frame[n:][:d.payload]
	c := Begin(b[template.Network():n]).Add(payload)
	n += copy(b[n:], payload)
	n += c.Finish(b[n:], d.Pad)
	if !bytes.Equal(b[:n], frame) {
		t.Errorf("encoded anew:\n%x\nwas\n%x", b[:n], frame)
	}
}

// checkCapture decodes every packet, compares it with tshark's output, checks its ICRC and encodes
// it.
func checkCapture(t *testing.T, capture, golden string) (all []decoded) {
	t.Helper()
	packets, rows := readPcap(t, capture), readRows(t, golden)
	if len(packets) != len(rows) {
		t.Fatalf("%d packets, tshark has %d", len(packets), len(rows))
	}
	for i, frame := range packets {
		d := decode(t, frame)
		d.checkRow(t, rows[i])
		d.checkEncode(t, frame)
		if !Check(frame[d.Network : d.Transport+d.Length]) {
			t.Errorf("packet %d: wrong ICRC", i+1)
		}
		all = append(all, d)
	}
	return all
}

// TestCapture: this package decodes the packets of two Soft-RoCE hosts, and encodes the same bytes.
func TestCapture(t *testing.T) {
	all := checkCapture(t, "testdata/two-hosts.pcap", "testdata/two-hosts.csv")
	if len(all) != 517 {
		t.Fatalf("%d packets, not 517", len(all))
	}
	management, mtu := 0, map[uint32]int{}
	for i, d := range all {
		if d.DestQPN == 1 {
			management++
			if d.Opcode != UDSendOnly || d.QKey != 0x80010000 || d.SourceQPN != 1 || d.payload != 256 {
				t.Errorf("packet %d to the connection manager: %v, Q_Key %x from %d, %d bytes", i+1, d.Opcode, d.QKey, d.SourceQPN, d.payload)
			}
		}
		if d.Opcode.Starts() && !d.Opcode.Ends() {
			mtu[d.DestQPN] = d.payload
		}
	}
	if management != 17 {
		t.Errorf("%d packets of the connection manager, not 17", management)
	}
	for i, d := range all {
		if m := CheckPayload(d.Opcode, d.payload, max(mtu[d.DestQPN], 1024)); m != WellFormed {
			t.Errorf("packet %d: %v of %d bytes: %v", i+1, d.Opcode, d.payload, m)
		}
		if table[d.Opcode].has(deth) && d.SourceQPN > 1 && d.SourcePort != softSourcePort(d.SourceQPN) {
			t.Errorf("packet %d: source port %d, want %d", i+1, d.SourcePort, softSourcePort(d.SourceQPN))
		}
		if d.Source.Addr().String() != "10.77.0.1" && d.Source != rdma.GIDOf(all[0].Source.Addr()) {
			t.Errorf("packet %d is from %v", i+1, d.Source)
		}
	}
}

// softSourcePort returns the port that Soft-RoCE uses for all packets of a queue pair, for every
// peer. rxe_qp_init_req in drivers/infiniband/sw/rxe/rxe_qp.c.
func softSourcePort(localQPN uint32) uint16 {
	const goldenRatio = 0x61c88647 // include/linux/hash.h
	return uint16(localQPN*goldenRatio>>(32-portBits)) | minSourcePort
}
