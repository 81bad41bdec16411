package bpf

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// writePcap writes the packets to a file that tcpdump reads. The time of each
// packet is its index, in seconds.
func writePcap(t *testing.T, packets [][]byte) string {
	t.Helper()
	le := binary.LittleEndian
	b := le.AppendUint32(nil, 0xa1b2c3d4)
	b = le.AppendUint16(b, 2)
	b = le.AppendUint16(b, 4)
	for _, v := range []uint32{0, 0, 65535, 1} { // zone, accuracy, longest, Ethernet
		b = le.AppendUint32(b, v)
	}
	for i, p := range packets {
		for _, v := range []int{i, 0, len(p), len(p)} {
			b = le.AppendUint32(b, uint32(v))
		}
		b = append(b, p...)
	}
	name := filepath.Join(t.TempDir(), "packets.pcap")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// tcpdump returns the indices of the packets that the expression accepts.
func tcpdump(t *testing.T, file, expression string) []int {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, "tcpdump"), "-nr", file, "-w", "-", expression)
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

// acceptedBy returns the indices of the packets that the loaded program wants.
func acceptedBy(t *testing.T, expression string, packets [][]byte) []int {
	t.Helper()
	p := mustLoad(t, Config{Filter: mustParse(t, expression)})
	defer p.Close()
	var accepted []int
	for i, packet := range packets {
		if accepts(t, p, packet) {
			accepted = append(accepted, i)
		}
	}
	return accepted
}

func TestAgreesWithTcpdump(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var packets [][]byte
	for range 300 {
		packets = append(packets, randomPlain(r))
	}
	texts := slices.Clone(expressions)
	for range 100 {
		texts = append(texts, randomExpression(r, 3, randomTest))
	}
	file := writePcap(t, packets)
	both := 0
	for _, text := range texts {
		got, want := acceptedBy(t, text, packets), tcpdump(t, file, text)
		if len(got) > 0 && len(got) < len(packets) {
			both++
		}
		for i, packet := range packets {
			if a, b := slices.Contains(got, i), slices.Contains(want, i); a != b {
				t.Errorf("%q: we say %v, tcpdump %v, of\n%x", text, a, b, packet)
				break
			}
		}
	}
	if both < len(texts)/2 {
		t.Errorf("only %d of %d filters accepted some packets and rejected others: the test shows little", both, len(texts))
	}
}
