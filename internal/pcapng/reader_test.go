package pcapng

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// packet is one packet as an independent reader should show it.
type packet struct {
	iface uint32
	ns    uint64
	data  []byte
	orig  uint32
}

var (
	testSection    = Section{Comment: "as the case\nwas opened", Hardware: "a machine", OS: "Linux", Application: "unifiedd test"}
	testInterfaces = []Interface{
		{Name: "eth0", Description: "eth0 queue 0", Filter: "udp port 53", Comment: "tap at the door, é", Speed: 10_000_000_000, SnapLen: MaxCapLen, LinkType: LinkTypeEthernet},
		{Name: "eth0", Description: "eth0 queue 1", SnapLen: MaxCapLen, LinkType: LinkTypeEthernet},
		{Name: "lo", SnapLen: MaxCapLen, LinkType: LinkTypeEthernet},
	}
)

// testPacket is an Ethernet frame of n bytes that tools dissect without complaint. seed determines its
// contents.
func testPacket(seed uint64, n int) packet {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(seed*7 + uint64(i))
	}
	if n >= 14 {
		data[12], data[13] = 0x88, 0xb5 // local experimental EtherType
	}
	return packet{iface: uint32(seed % 3), ns: 1700000000_000000000 + seed*1001, data: data, orig: uint32(n)}
}

// appendPacket appends p with its block rounded up to align.
func appendPacket(dst []byte, p packet, align uint32) []byte {
	n := PacketBlockLen(uint32(len(p.data)), align)
	at := len(dst)
	dst = append(dst, poisoned(int(n))...)
	PutPacket(dst[at:], p.iface, p.ns, p.data, p.orig, n)
	return dst
}

// checkIndependently reads the file with the usual programs and compares their results.
func checkIndependently(t *testing.T, file []byte, want []packet) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "capture.pcapng")
	testenv.Must(t, os.WriteFile(path, file, 0o600))
	checkTools(t, path, len(want))
	checkPackets(t, path, want)
}

// checkPackets compares packets as Wireshark's reader sees them. editcap turns the file into a classic
// nanosecond pcap, which has only time, lengths and bytes. tshark reports the interfaces.
func checkPackets(t *testing.T, path string, want []packet) {
	t.Helper()
	runTool(t, []string{"editcap", "-F", "nsecpcap", path, path + ".pcap"})
	raw, err := os.ReadFile(path + ".pcap")
	testenv.Must(t, err)
	ifaces := strings.Fields(runTool(t, []string{"tshark", "-n", "-r", path, "-T", "fields", "-e", "frame.interface_id"}))
	if len(ifaces) != len(want) {
		t.Fatalf("tshark saw %d packets, want %d", len(ifaces), len(want))
	}
	raw = raw[24:]
	for i, w := range want {
		var got packet
		got, raw = nextClassic(raw)
		if !bytes.Equal(got.data, w.data) || got.ns != w.ns || got.orig != w.orig || ifaces[i] != fmt.Sprint(w.iface) {
			t.Fatalf("packet %d: got interface %s %+v, want %+v", i, ifaces[i], got, w)
		}
	}
	if len(raw) != 0 {
		t.Fatalf("editcap saw more than %d packets", len(want))
	}
}

// nextClassic removes one packet from a classic nanosecond pcap.
func nextClassic(b []byte) (p packet, rest []byte) {
	if len(b) < 16 {
		return p, nil
	}
	n := le.Uint32(b[8:])
	p.ns = uint64(le.Uint32(b))*1e9 + uint64(le.Uint32(b[4:]))
	p.orig = le.Uint32(b[12:])
	p.data = b[16 : 16+n]
	return p, b[16+n:]
}

// checkTools runs the standard readers. Each must exit with 0, print nothing on standard error, and see n
// packets.
func checkTools(t *testing.T, path string, n int) {
	t.Helper()
	for _, c := range []struct {
		cmd   []string
		lines bool // one line per packet
	}{
		{[]string{"tshark", "-n", "-r", path, "-T", "fields", "-e", "frame.number"}, true},
		{[]string{"tcpdump", "-n", "-t", "-r", path}, true},
		{[]string{"capinfos", "-c", "-T", "-r", path}, false},
		{[]string{"editcap", path, path + ".copy"}, false},
	} {
		out := runTool(t, c.cmd)
		if got := strings.Count(out, "\n") - strings.Count(out, "\n\t"); c.lines && got != n { // tcpdump indents dumps
			t.Errorf("%s saw %d packets, want %d", c.cmd[0], got, n)
		}
	}
}

func runTool(t *testing.T, cmd []string) string {
	t.Helper()
	if _, err := exec.LookPath(cmd[0]); err != nil {
		needed(t, cmd[0])
	}
	var out, errs bytes.Buffer
	c := exec.Command(cmd[0], cmd[1:]...)
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil || complaint(errs.String()) {
		t.Errorf("%s: %v: %s", strings.Join(cmd, " "), err, errs.String())
	}
	return out.String()
}

// needed skips the test if a reader is not installed, and fails it if the reader is required.
func needed(t *testing.T, program string) {
	t.Helper()
	if os.Getenv("CI") == "true" || os.Getenv("UNIFIEDD_REQUIRE") == "1" {
		t.Fatalf("%s is not installed (apt install tshark tcpdump)", program)
	}
	t.Skipf("%s is not installed (apt install tshark tcpdump)", program)
}

// complaint reports whether standard error has anything but the programs' usual greetings.
func complaint(stderr string) bool {
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, "reading from file") && !strings.HasPrefix(line, "Running as user") {
			return true
		}
	}
	return false
}

// Every reader accepts every size of pad option, in both layouts, after a stream head.
func TestStreamReadsEverywhere(t *testing.T) {
	file, err := AppendStreamHead(nil, testSection, testInterfaces)
	testenv.Must(t, err)
	var want []packet
	for i := range uint64(600) {
		p := testPacket(i, 14+int(i))
		want = append(want, p)
		file = appendPacket(file, p, []uint32{4, 512, 4096}[i/3%3])
	}
	for i := range uint64(16) { // a block 0 to 60 bytes longer than needed
		p := testPacket(i, 61)
		want = append(want, p)
		n := PacketBlockLen(61, 4) + uint32(i)*4
		block := poisoned(int(n))
		PutPacket(block, p.iface, p.ns, p.data, p.orig, n)
		file = append(file, block...)
	}
	file = AppendStatistics(file, Statistics{Interface: 1, Time: 1700000001e9, Start: 1700000000e9, End: 1700000001e9, Received: 5, Delivered: 5})
	checkIndependently(t, file, want)
}

// The programs show the head's values: names, filter, speed, resolution, and counters of the statistics
// block.
func TestHeadAsToolsSeeIt(t *testing.T) {
	file, err := AppendSegmentHead(nil, testSection, testInterfaces, Segment{Align: 4096})
	testenv.Must(t, err)
	if len(file)%4096 != 0 {
		t.Errorf("head of %d bytes", len(file))
	}
	file = AppendStatistics(file, Statistics{Interface: 1, Time: 1700000001e9, Received: 4711, Dropped: Unknown, Accepted: Unknown, OSDropped: 17, Delivered: Unknown})
	path := filepath.Join(t.TempDir(), "head.pcapng")
	testenv.Must(t, os.WriteFile(path, file, 0o600))
	out := runTool(t, []string{"capinfos", path})
	for _, s := range []string{
		"a machine", "unifiedd test", "eth0 queue 1", "udp port 53", "10000000000", "Time precision = nanoseconds (9)",
		"Number of interfaces in file: 3", "tap at the door, é", "as the case", "was opened", "Number of stat entries = 1", "Encapsulation = Ethernet",
	} {
		if !strings.Contains(out, s) {
			t.Errorf("capinfos does not say %q:\n%s", s, out)
		}
	}
	checkTools(t, path, 0)
}

func TestHeadRefusals(t *testing.T) {
	long := strings.Repeat("x", MaxText+1)
	many := make([]Interface, 5000)
	for i := range many {
		many[i] = Interface{Description: long[:MaxText]}
	}
	for name, c := range map[string]struct {
		s     Section
		ifs   []Interface
		align uint32
		want  string
	}{
		"no interface": {Section{}, nil, 512, "no interface"},
		"alignment":    {Section{}, testInterfaces, 768, "alignment 768"},
		"long text":    {Section{OS: long}, testInterfaces, 512, "section: a text of 4097 bytes"},
		"long comment": {Section{Comment: long}, testInterfaces, 512, "section: a text of 4097 bytes"},
		"long filter":  {Section{}, []Interface{{Name: "e1", Filter: long}}, 512, "interface e1: a text"},
		"snap lengths": {Section{}, []Interface{{Name: "a", SnapLen: 1}, {Name: "b", SnapLen: 2}}, 512, "libpcap wants them equal"},
		"snapshot":     {Section{}, []Interface{{Name: "a", SnapLen: 1 << 30}}, 512, "snapshot length"},
		"too long":     {Section{}, many, 512, "use fewer queues"},
	} {
		if _, err := AppendSegmentHead(nil, c.s, c.ifs, Segment{Align: c.align}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
