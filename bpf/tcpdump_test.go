package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// writePcap writes the packets to a file that tcpdump reads. The time of each
// packet is its index, in seconds.
func writePcap(t *testing.T, packets [][]byte) string {
	return writePcapOf(t, linktype.Ethernet, packets)
}

func writePcapOf(t *testing.T, of linktype.Type, packets [][]byte) string {
	t.Helper()
	le := binary.LittleEndian
	b := le.AppendUint32(nil, 0xa1b2c3d4)
	b = le.AppendUint16(b, 2)
	b = le.AppendUint16(b, 4)
	for _, v := range []uint32{0, 0, 65535, uint32(of)} { // zone, accuracy, longest
		b = le.AppendUint32(b, v)
	}
	for i, p := range packets {
		for _, v := range []int{i, 0, len(p), len(p)} {
			b = le.AppendUint32(b, uint32(v))
		}
		b = append(b, p...)
	}
	name := filepath.Join(t.TempDir(), "packets.pcap")
	testenv.Must(t, os.WriteFile(name, b, 0o600))
	return name
}

// tcpdump returns the indices of the packets that the expression accepts.
func tcpdump(t *testing.T, file, expression string) []int {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, "tcpdump"), "-r", file, "-w", "-", "--", expression)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		if strings.Contains(stderr.String(), "rejects all packets") {
			return nil
		}
		t.Fatalf("tcpdump %q: %v\n%s", expression, err, stderr.String())
	}
	var accepted []int
	for at := 24; at < len(out); {
		accepted = append(accepted, int(binary.LittleEndian.Uint32(out[at:])))
		at += 16 + int(binary.LittleEndian.Uint32(out[at+8:]))
	}
	return accepted
}

// expressions returns the expressions of the file, without the comments that name their sources.
func expressions(t testing.TB, file string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	testenv.Must(t, err)
	var list []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			list = append(list, line)
		}
	}
	return list
}

// verdicts compares the loaded program, the matcher and tcpdump on packets, and returns how many
// they accept. The program does not get packets shorter than a header.
func verdicts(t *testing.T, p *Program, text, file string, packets [][]byte) (accepted int) {
	t.Helper()
	return verdictsOf(t, p, linktype.Ethernet, text, file, packets)
}

// verdictsOf is verdicts for packets of another link type.
func verdictsOf(t *testing.T, p *Program, of linktype.Type, text, file string, packets [][]byte) (accepted int) {
	t.Helper()
	e, err := filter.ParseFor(of, text)
	if errors.Is(err, filter.ErrRejectsAll) {
		if n := len(tcpdump(t, file, text)); n > 0 {
			t.Errorf("%q: %v; tcpdump takes %d packets", text, err, n)
		}
		return 0
	}
	if err != nil {
		t.Errorf("%q: %v", text, err)
		return 0
	}
	// With Drop the return value shows whether the program accepts a packet, and no counters need
	// to be read.
	if err := p.Select(Selection{Rules: []Rule{{Match: e, Action: Drop}}}); err != nil {
		t.Errorf("%q: %v", text, err)
		return 0
	}
	m, want := e.Matcher(), tcpdump(t, file, text)
	for i, packet := range packets {
		asked := slices.Contains(want, i)
		if got := m.Match(packet); got != asked {
			t.Errorf("%q (%s): the matcher says %v, tcpdump %v, of\n%x", text, e, got, asked, packet)
			break
		}
		if len(packet) < 14 {
			continue
		}
		if got := drops(t, p, packet); got != asked {
			t.Errorf("%q (%s): the program says %v, tcpdump %v, of\n%x", text, e, got, asked, packet)
			break
		}
	}
	return len(want)
}

// drops reports whether the program drops a packet instead of passing it.
func drops(t *testing.T, p *Program, packet []byte) bool {
	t.Helper()
	const xdpDrop, xdpPass = 1, 2
	action, err := p.program.Run(&ebpf.RunOptions{Data: packet})
	if err != nil || action != xdpDrop && action != xdpPass {
		t.Fatalf("run the program over %d bytes: XDP action %d, %v", len(packet), action, err)
	}
	return action == xdpDrop
}

// TestAgreesWithTcpdump compares with tcpdump, and so libpcap, on the same packets: whole and
// truncated ones, with tags, labels, options, fragments, extension headers, and random bytes.
func TestAgreesWithTcpdump(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	packets := malformed(r)
	packets = append(append(packets, typical()...), frames(r)...)
	for len(packets) < 600 {
		packets = append(packets, randomPlain(r), randomAny(r), randomLayered(r))
	}
	file := writePcap(t, packets)
	texts := expressions(t, "expressions.txt")
	if len(texts) < 200 {
		t.Fatalf("%d expressions, want 200", len(texts))
	}
	p, both := mustLoad(t, Config{}), 0
	for _, text := range texts {
		if n := verdicts(t, p, text, file, packets); n > 0 && n < len(packets) {
			both++
		} else {
			t.Logf("%q accepts %d of %d", text, n, len(packets))
		}
	}
	if both < len(texts)*9/10 {
		t.Errorf("only %d of %d filters accepted some packets and rejected others: the test shows little", both, len(texts))
	}
}

// TestRandomExpressionsAgreeWithTcpdump does the same for random nested expressions of all tests.
func TestRandomExpressionsAgreeWithTcpdump(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 6))
	var packets [][]byte
	for len(packets) < 200 {
		packets = append(packets, randomPlain(r), randomAny(r), randomLayered(r))
	}
	file := writePcap(t, packets)
	p := mustLoad(t, Config{})
	for range 100 {
		verdicts(t, p, randomExpression(r, 3, randomTest), file, packets)
	}
}

// TestPrintsWhatMeansTheSame: the printed form of an expression means the same to tcpdump as the
// expression does here.
func TestPrintsWhatMeansTheSame(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 6))
	var packets [][]byte
	for len(packets) < 100 {
		packets = append(packets, randomPlain(r), randomAny(r), randomLayered(r))
	}
	file := writePcap(t, packets)
	for _, text := range expressions(t, "expressions.txt") {
		e, err := filter.Parse(text)
		if errors.Is(err, filter.ErrRejectsAll) {
			continue
		}
		testenv.Must(t, err)
		m, theirs := e.Matcher(), tcpdump(t, file, e.String())
		for i, packet := range packets {
			if got, want := m.Match(packet), slices.Contains(theirs, i); got != want {
				t.Errorf("%q: the matcher says %v, tcpdump, asked for %q, %v, of\n%x", text, got, e, want, packet)
				break
			}
		}
	}
}

// TestManual: Parse accepts or refuses each form of the manual as tcpdump does, with the same
// meaning.
func TestManual(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 6))
	packets := [][]byte{
		pad(ethernet(poolMAC[0], poolMAC[1], nil, 0x0800, ipv4("127.0.0.1", "10.0.0.2", 6, 0, 0, ports(20, 22)))),
		pad(ethernet(poolMAC[0], poolMAC[1], nil, 0x0800, ipv4("10.0.0.2", "127.0.0.0", 17, 0, 0, ports(123, 69)))),
		pad(ethernet(poolMAC[0], poolMAC[1], nil, 0x0800, ipv4("169.254.0.0", "10.0.0.2", 88, 0, 0, ports(1, 2)))),
	}
	for len(packets) < 200 {
		packets = append(packets, randomPlain(r), randomAny(r), randomLayered(r))
	}
	file := writePcap(t, packets)
	p := mustLoad(t, Config{})
	for _, text := range expressions(t, "manual.txt") {
		refused, _, says := theirVerdict(t, linktype.Ethernet, text)
		if e, err := filter.Parse(text); (err != nil) != refused {
			t.Errorf("%q is read as %v (%v), and tcpdump says %q", text, e, err, says)
			continue
		}
		if !refused {
			verdicts(t, p, text, file, packets)
		}
	}
}

// TestRefusesWhatTcpdumpRefuses: Parse refuses each expression that tcpdump refuses. A file of its
// own lists expressions that only this project refuses.
func TestRefusesWhatTcpdumpRefuses(t *testing.T) {
	file := writePcap(t, nil)
	for name, theirs := range map[string]bool{"refused.txt": true, "refused_here.txt": false} {
		for _, text := range expressions(t, name) {
			if e, err := filter.Parse(text); err == nil {
				t.Errorf("%q is read as %q", text, e)
			}
			out, err := exec.Command(testenv.Tool(t, "tcpdump"), "-d", "-r", file, "--", text).CombinedOutput()
			if (err != nil) != theirs {
				t.Errorf("tcpdump -d %q: %v\n%s", text, err, out)
			}
		}
	}
}
