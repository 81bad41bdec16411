package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// barePacket returns an IPv4 packet of a protocol, with a number in it.
func barePacket(proto byte, n int) []byte {
	p := append([]byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, proto, 0, 0, 10, 77, 0, 2, 10, 77, 0, 1}, fmt.Sprintf("%016d", n)...)
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	sum := uint32(0)
	for at := 0; at < 20; at += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[at:]))
	}
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum>>16+sum))
	return p
}

// pcapOf writes a pcap file of packets of a link type.
func pcapOf(t *testing.T, link uint32, packets ...[]byte) string {
	t.Helper()
	le := binary.LittleEndian
	b := le.AppendUint16(le.AppendUint16(le.AppendUint32(nil, 0xa1b2c3d4), 2), 4)
	for _, v := range []uint32{0, 0, 65535, link} {
		b = le.AppendUint32(b, v)
	}
	for i, p := range packets {
		for _, v := range []int{i, 0, len(p), len(p)} {
			b = le.AppendUint32(b, uint32(v))
		}
		b = append(b, p...)
	}
	name := filepath.Join(testenv.DiskDir(t), fmt.Sprintf("link%d.pcap", link))
	testenv.Must(t, os.WriteFile(name, b, 0o644))
	return name
}

// feed writes packets to a tun interface until the test ends, half of them ICMP.
func feed(t *testing.T, tun *testenv.Tap) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-done })
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			if _, err := tun.File.Write(barePacket([]byte{1, 17}[n%2], n)); err != nil {
				return
			}
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
}

// count returns how many packets of a file match a filter in tcpdump, and what tcpdump says about the file.
func count(t *testing.T, file, filter string) (n int, says string) {
	t.Helper()
	var errs strings.Builder
	cmd := exec.Command(testenv.Tool(t, "tcpdump"), "-nr", file, filter)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tcpdump: %v: %s", err, errs.String())
	}
	return strings.Count(string(out), "\n"), errs.String()
}

// TestCaptureWithoutEthernet: in a capture from a tun interface the file says that packets begin
// with IP. Filters of capture and export look in the right place.
func TestCaptureWithoutEthernet(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	tun := testenv.NewTun(t)
	feed(t, tun)
	dir := testenv.DiskDir(t)
	for layout, settings := range map[string][]string{"packed": {"--take", "--ring", "512"}, "slot": {"--take", "--ring", "512", "--layout", "slot"}, "packet-socket": nil} {
		if testing.Short() && layout != "packed" {
			continue
		}
		all, some := filepath.Join(dir, layout+"-all.pcapng"), filepath.Join(dir, layout+"-icmp.pcapng")
		for file, filter := range map[string]string{all: "", some: "icmp and dst host 10.77.0.1"} {
			args := append([]string{"capture", "-i", tun.Ifname, "-c", "50", "-w", file}, settings...)
			if filter != "" {
				args = append(args, filter)
			}
			if status, _, stderr := finish(t, command(t, &tun.End, args...)); status != 0 {
				t.Fatalf("%v: status %d: %s", args, status, stderr)
			}
		}
		if n, says := count(t, all, "icmp"); n < 20 || n > 30 || !strings.Contains(says, "link-type RAW") {
			t.Errorf("%s: %d of 50 packets are ICMP: %s", layout, n, says)
		}
		if n, _ := count(t, some, "icmp"); n != 50 {
			t.Errorf("%s: %d of 50 packets that were filtered are ICMP", layout, n)
		}
		out := filepath.Join(dir, layout+"-export.pcapng")
		want, _ := count(t, all, "udp")
		if status := run([]string{"export", "-r", all, "-w", out, "udp"}, testWriter{t}, testWriter{t}); status != 0 {
			t.Fatalf("export: status %d", status)
		}
		if n, says := count(t, out, ""); n != want || !strings.Contains(says, "link-type RAW") {
			t.Errorf("%s: %d of %d packets exported: %s", layout, n, want, says)
		}
	}
}

// testWriter writes to the test's log.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) { w.t.Logf("%s", b); return len(b), nil }

// TestLinkTypesRefused: settings that need Ethernet are refused on an interface without it, with
// the interface and its type. Filters and captures of another link type are refused too.
func TestLinkTypesRefused(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	tun := testenv.NewTun(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	frame := append(make([]byte, 12), append([]byte{8, 0}, barePacket(17, 1)...)...)
	ether, raw, cooked, ipv4 := pcapOf(t, 1, frame), pcapOf(t, 101, barePacket(17, 1)), pcapOf(t, 113, frame), pcapOf(t, 228, barePacket(17, 1))
	mixed := filepath.Join(testenv.DiskDir(t), "mixed.pcapng")
	if out, err := exec.Command(testenv.Tool(t, "mergecap"), "-w", mixed, ether, raw).CombinedOutput(); err != nil {
		t.Fatalf("mergecap: %v: %s", err, out)
	}
	for name, c := range map[string]struct {
		end    *testenv.End
		args   []string
		status int
		says   []string
	}{
		"mirror":              {&tun.End, []string{"capture", "-i", tun.Ifname, "--engine", "xdp"}, exitUsage, []string{tun.Ifname, "type none, tun", "mirror needs"}},
		"ether filter":        {&tun.End, []string{"capture", "-i", tun.Ifname, "ether host 02:00:00:00:00:01"}, exitUsage, []string{"RAW"}},
		"arp":                 {&tun.End, []string{"capture", "-i", tun.Ifname, "arp"}, exitUsage, []string{"rejects all packets"}},
		"contradiction":       {&p.B, []string{"capture", "-i", p.B.Ifname, "icmp and vlan"}, exitUsage, []string{"rejects all packets"}},
		"Ethernet into tun":   {&tun.End, []string{"replay", "-i", tun.Ifname, ether}, exitFailed, []string{ether, "EN10MB (1)", "RAW (101)", tun.Ifname}},
		"raw into Ethernet":   {&p.A, []string{"replay", "-i", p.A.Ifname, raw}, exitFailed, []string{raw, "RAW (101)", "EN10MB (1)", p.A.Ifname}},
		"cooked":              {&p.A, []string{"replay", "-i", p.A.Ifname, cooked}, exitFailed, []string{cooked, "LINUX_SLL (113)"}},
		"several link types":  {&p.A, []string{"replay", "-i", p.A.Ifname, mixed}, exitFailed, []string{mixed, "several link types"}},
		"replay filter":       {&p.A, []string{"replay", "-i", p.A.Ifname, "--filter", "ip and ip6", ether}, exitUsage, []string{"rejects all packets"}},
		"several, with tun":   {&tun.End, []string{"capture", "-i", tun.Ifname, "-i", "lo", "--take=anyway"}, exitUsage, []string{"has one link type"}},
		"export, cooked":      {&p.A, []string{"export", "-r", cooked, "udp"}, exitFailed, []string{cooked, "LINUX_SLL (113)", "without a filter"}},
		"export, ether":       {&p.A, []string{"export", "-r", raw, "ether host 02:00:00:00:00:01"}, exitFailed, []string{raw, "RAW"}},
		"export, rejects all": {&p.A, []string{"export", "-r", ether, "ip and ip6"}, exitUsage, []string{"rejects all packets"}},
	} {
		cmd := commandAsIs(t, c.end, nil, c.args...)
		if status, _, stderr := finish(t, cmd); status != c.status || !holdsAll(stderr, c.says) {
			t.Errorf("%s: status %d, want %d with %q: %s", name, status, c.status, c.says, stderr)
		}
	}
	for _, file := range []string{raw, ipv4} {
		if status, _, stderr := finish(t, command(t, &tun.End, "replay", "-q", "-t", "-i", tun.Ifname, file)); status != 0 || !strings.Contains(stderr, "1 packets sent") {
			t.Fatalf("replay of %s: status %d: %s", file, status, stderr)
		}
		b := make([]byte, 2000)
		n, err := tun.File.Read(b)
		if err != nil || string(b[:n]) != string(barePacket(17, 1)) {
			t.Errorf("the tunnel got %x, %v", b[:n], err)
		}
	}
}

func holdsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// TestAlternativeNames: a configuration may use an alternative name of an interface, of any length. Two
// flows that use different names share the interface. The status has its first name and the configured one.
func TestAlternativeNames(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	const long = "the-card-toward-the-exchange-in-rack-17"
	p.B.Run(t, "ip", "link", "property", "add", "dev", p.B.Ifname, "altname", long, "altname", "short-alt")
	background(t, p)
	file := filepath.Join(testenv.DiskDir(t), "out.pcapng")
	for _, name := range []string{long, "short-alt"} {
		if status, _, stderr := finish(t, command(t, &p.B, "capture", "-i", name, "--take", "--ring", "512", "-c", "20", "-w", file)); status != 0 || !strings.Contains(stderr, "20 packets captured") {
			t.Errorf("capture on %s: status %d: %s", name, status, stderr)
		}
	}
	if status, _, stderr := finish(t, command(t, &p.B, "capture", "-i", long, "--engine", "xdp", "--ring", "512", "-c", "20", "-w", file)); status != 0 {
		t.Errorf("mirror of %s: status %d: %s", long, status, stderr)
	}
	config := filepath.Join(t.TempDir(), "c.yaml")
	text := fmt.Sprintf("flows:\n  - {name: one, from: {interface: %s}, to: {discard: true}}\n  - {name: two, from: {interface: %s, filter: tcp}, to: {discard: true}}\n", p.B.Ifname, long)
	testenv.Must(t, os.WriteFile(config, []byte(text), 0o644))
	if status, _, stderr := finish(t, commandAsIs(t, &p.B, nil, "check", "-c", config)); status != exitUsage && status != exitFailed || !strings.Contains(stderr, "would get none") {
		t.Errorf("check of two flows of one interface: status %d: %s", status, stderr)
	}
}
