package flows

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// mirrors starts a flow that mirrors end B's interface, in a lab with addresses.
func (l *lab) mirrors(t *testing.T, layout, direction string) *Flow {
	t.Helper()
	text := strings.Replace(l.defaults(layout), "ring: 2048", "ring: 4096, mirror: "+direction, 1)
	return l.start(t, text, Options{}).Flows()[0]
}

// TestMirror: with a mirror, ping, TCP and packets with VLAN tags work as without one. The file has each
// packet of both directions as often as tcpdump has it on the same interface.
func TestMirror(t *testing.T) {
	for _, layout := range oneOf(t, layouts...) {
		t.Run(layout, func(t *testing.T) {
			l := newLab(t, testenv.PairOptions{})
			f := l.mirrors(t, layout, "both")
			in, out := listen(t, l, "in"), listen(t, l, "out")
			l.A.Run(t, "ping", "-c", "5", "-i", "0.02", "-s", "900", l.B.IP.String())
			l.transfer(t, "1M")
			testenv.SendRaw(t, &l.A, tagged(&l.A, &l.B, 20), testenv.SendOptions{})
			testenv.SendRaw(t, &l.B, tagged(&l.B, &l.A, 20), testenv.SendOptions{})
			arrived, left := in.rest(t), out.rest(t)
			n := uint64(len(arrived) + len(left))
			s := await(t, f, "copies of all that tcpdump has", func(s status.Flow) bool { return s.Written.Packets+lost(s) >= n })
			if lost(s) > 0 || len(s.Mirrors) != 2 || s.From != l.B.Ifname {
				t.Errorf("lost %v; mirrors %v of %s", s.Dropped, s.Mirrors, s.From)
			}
			testenv.Must(t, f.Stop())
			all := captures.Records(t, l.files(t)...)
			samePackets(t, "what arrived", unordered(captures.Contents(of(all, 0))), unordered(arrived))
			samePackets(t, "what left", unordered(captures.Contents(of(all, 1))), unordered(left))
			l.toldDirections(t, len(arrived), len(left))
			captures.Readable(t, l.files(t)...)
			if links := l.B.Run(t, "ip", "-o", "link"); strings.Contains(links, "ufd-") {
				t.Errorf("a stopped flow leaves %s", links)
			}
		})
	}
}

// unordered sorts packets by their bytes. If two processors handle packets at the same time, even of one
// stream, tcpdump and a mirror may see them in different orders.
func unordered(all [][]byte) [][]byte {
	all = slices.Clone(all)
	slices.SortFunc(all, bytes.Compare)
	return all
}

// of returns the packets of one interface of a file.
func of(all []testenv.Captured, iface int) (some []testenv.Captured) {
	for _, c := range all {
		if c.Interface == iface {
			some = append(some, c)
		}
	}
	return some
}

// listen starts tcpdump for one direction at end B.
func listen(t *testing.T, l *lab, direction string) *tcpdump {
	t.Helper()
	return startTcpdumpOf(t, &l.B, direction, 65536)
}

// rest waits for the last packets and ends the capture.
func (d *tcpdump) rest(t *testing.T) [][]byte {
	t.Helper()
	time.Sleep(200 * time.Millisecond) // tcpdump writes each packet at once, and by then none is on the wire
	return d.stop(t, 0, 0)
}

// transfer makes iperf3 send this many bytes each way over TCP.
func (l *lab) transfer(t *testing.T, bytes string) {
	t.Helper()
	testenv.Tool(t, "iperf3")
	server := l.B.Command("iperf3", "-s", "-1", "-B", l.B.IP.String())
	testenv.Must(t, server.Start())
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	testenv.Wait(t, 10*time.Second, "iperf3 to listen", func() bool { return strings.Contains(l.B.Run(t, "ss", "-Hltn"), ":5201") })
	l.A.Run(t, "iperf3", "-c", l.B.IP.String(), "-n", bytes, "--bidir", "-b", "50M")
}

// tagged are packets with a VLAN tag.
func tagged(from, to *testenv.End, n int) [][]byte {
	frames := testenv.Stream(from, to, 7, 0, n, 200)
	for i, f := range frames {
		frames[i] = bytes.Join([][]byte{f[:12], {0x81, 0, 0, 42}, f[12:]}, nil)
	}
	return frames
}

// toldDirections checks the direction flags of packets, as tshark reads them.
func (l *lab) toldDirections(t *testing.T, arrived, left int) {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "tshark"), "-r", l.files(t)[0], "-T", "fields", "-e", "frame.packet_flags_direction").Output()
	testenv.Must(t, err)
	counts := map[string]int{}
	for _, word := range strings.Fields(string(out)) {
		counts[word]++
	}
	if counts["0x00000001"]+counts["1"] != arrived || counts["0x00000002"]+counts["2"] != left {
		t.Errorf("directions %v, want %d inbound and %d outbound", counts, arrived, left)
	}
}

// TestMirrorOffloads: the host sends segments of up to 64 KiB without checksums, and receives merged packets.
// In the file they are cut to the MTU and have their checksums. The TCP streams are those of tcpdump's file.
func TestMirrorOffloads(t *testing.T) {
	l := newLab(t, testenv.PairOptions{})
	for _, e := range []*testenv.End{&l.A, &l.B} {
		e.Run(t, testenv.Tool(t, "ethtool"), "-K", e.Ifname, "tso", "on", "gso", "on", "tx", "on", "sg", "on")
	}
	f := l.mirrors(t, "packed", "both")
	in, out := listen(t, l, "in"), listen(t, l, "out")
	l.transfer(t, "2M")
	dumped := [][][]byte{in.rest(t), out.rest(t)}
	long := 0
	for _, f := range append(dumped[0], dumped[1]...) {
		long = max(long, len(f))
	}
	if long <= 1514 {
		t.Fatalf("the host sends nothing longer than %d bytes: the test shows nothing", long)
	}
	testenv.Must(t, f.Stop())
	if s := f.Status(); lost(s) > 0 {
		t.Fatalf("lost %v", s.Dropped)
	}
	all := captures.Records(t, l.files(t)...)
	for i, what := range []string{"what arrived", "what left"} {
		got := tcpStreams(t, captures.Contents(of(all, i)), true)
		want := tcpStreams(t, dumped[i], false)
		if len(got) != len(want) || len(got) == 0 {
			t.Errorf("%s: %d streams, tcpdump has %d", what, len(got), len(want))
		}
		for key, w := range want {
			if !bytes.Equal(got[key], w) {
				t.Errorf("%s: stream %s has %d bytes, tcpdump's %d, or others", what, key, len(got[key]), len(w))
			}
		}
	}
}

// tcpStreams reassembles each TCP stream by its sequence numbers. With wire set, packets must have correct
// checksums and must not be longer than the MTU.
func tcpStreams(t *testing.T, frames [][]byte, wire bool) map[string][]byte {
	t.Helper()
	all, first := map[string][]byte{}, map[string]uint32{}
	for _, f := range frames {
		p := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.NoCopy)
		ip, is := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		tcp, also := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if !is || !also {
			continue
		}
		if wire && (len(f) > 1514 || !goodChecksum(ip)) {
			t.Fatalf("a packet of %d bytes, checksum right: %v", len(f), goodChecksum(ip))
		}
		key := fmt.Sprint(ip.SrcIP, tcp.SrcPort, ip.DstIP, tcp.DstPort)
		if tcp.SYN {
			first[key], all[key] = tcp.Seq+1, []byte{}
		}
		at := int(tcp.Seq - first[key])
		if _, known := first[key]; !known || len(tcp.Payload) == 0 {
			continue
		}
		if end := at + len(tcp.Payload); end > len(all[key]) {
			all[key] = append(all[key], make([]byte, end-len(all[key]))...)
		}
		copy(all[key][at:], tcp.Payload)
	}
	return all
}

// goodChecksum reports whether a TCP segment with its pseudo-header (RFC 9293, section 3.1) has a correct
// checksum.
func goodChecksum(ip *layers.IPv4) bool {
	sum := uint32(ip.Protocol) + uint32(len(ip.Payload))
	for _, b := range [][]byte{ip.SrcIP.To4(), ip.DstIP.To4(), append(bytes.Clone(ip.Payload), 0)} {
		for i := 0; i+1 < len(b); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return sum == 0xffff
}

// TestMirrorLoopback: the file has each packet of the loopback interface once, although it both leaves and
// arrives.
func TestMirrorLoopback(t *testing.T) {
	l := newLab(t, testenv.PairOptions{})
	l.B.Run(t, "ip", "link", "set", "lo", "up")
	text := strings.Replace(l.defaults("packed"), "interface: "+l.B.Ifname, `interface: lo, mirror: both, filter: "icmp"`, 1)
	f := l.start(t, text, Options{}).Flows()[0]
	l.B.Run(t, "ping", "-c", "4", "-i", "0.01", "-s", "9000", "127.0.0.1")
	await(t, f, "four pings and four answers", func(s status.Flow) bool { return s.Written.Packets >= 8 })
	testenv.Must(t, f.Stop())
	got := captures.Records(t, l.files(t)...)
	if len(got) != 8 || len(got[0].Data) != 14+20+8+9000 {
		t.Errorf("%d packets, the first of %d bytes", len(got), len(got[0].Data))
	}
}

// TestMirrorGone: a flow waits while its mirrored interface is down, and fails when the interface is removed.
// A mirror of the interface with the default route does not need take_over.
func TestMirrorGone(t *testing.T) {
	l := newLab(t, testenv.PairOptions{})
	l.B.Run(t, "ip", "route", "add", "default", "via", l.A.IP.String())
	f := l.mirrors(t, "packed", "both")
	l.A.Run(t, "ping", "-c", "2", "-i", "0.01", l.B.IP.String())
	await(t, f, "two pings and two answers", func(s status.Flow) bool { return s.Written.Packets >= 4 })
	l.B.SetDown(t)
	await(t, f, "the flow to wait", func(s status.Flow) bool { return s.State == status.Waiting })
	l.B.SetUp(t)
	await(t, f, "the flow to go on", func(s status.Flow) bool { return s.State == status.Running })
	l.A.Delete(t)
	s := await(t, f, "the flow to end", func(s status.Flow) bool { return s.State == status.Failed })
	if !strings.Contains(s.Error, "gone") {
		t.Errorf("the flow says %q", s.Error)
	}
	if links := l.B.Run(t, "ip", "-o", "link"); strings.Contains(links, "ufd-") {
		t.Errorf("the flow leaves %s", links)
	}
	if got := captures.Packets(t, l.files(t)...); len(got) < 4 {
		t.Errorf("%d packets are kept", len(got))
	}
}
