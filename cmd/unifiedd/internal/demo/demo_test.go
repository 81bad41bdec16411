package demo

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// good returns a capture in which everything adds up, with one packet lost.
func good() result {
	p := status.Position{Packets: 9, Bytes: 900}
	return result{
		layout: "slot", sent: traffic{packets: 10, bytes: 1000, pings: 2, answered: 2}, fileBytes: 900,
		status:   status.Flow{Packets: 9, Bytes: 900, Offered: 14, Written: p, Durable: p, Dropped: map[string]uint64{"lost_ring_full": 1}},
		readings: []reading{{"tshark", 9}, {"capinfos", 9}, {"tcpdump", 9}},
	}
}

// TestProblems: a change of any one number is a problem.
func TestProblems(t *testing.T) {
	r := good()
	if errs := r.problems(); len(errs) != 0 {
		t.Fatalf("a good capture has problems: %v", errs)
	}
	for name, change := range map[string]func(*result){
		"one more sent":       func(r *result) { r.sent.packets++ },
		"one lost in secret":  func(r *result) { delete(r.status.Dropped, "lost_ring_full") },
		"one not written":     func(r *result) { r.status.Written.Packets-- },
		"one not durable":     func(r *result) { r.status.Durable.Packets-- },
		"a byte missing":      func(r *result) { r.fileBytes-- },
		"a ping unanswered":   func(r *result) { r.sent.answered-- },
		"one unaccounted for": func(r *result) { r.status.Missing = 1 },
		"one waiting":         func(r *result) { r.status.Waiting = 1 },
		"a reader missing":    func(r *result) { r.readings = r.readings[1:] },
		"a reader finds less": func(r *result) { r.readings = []reading{{"tshark", 9}, {"capinfos", 8}, {"tcpdump", 9}} },
	} {
		r := good()
		change(&r)
		if len(r.problems()) == 0 {
			t.Errorf("%s: nobody noticed", name)
		}
	}
}

// TestTable: the table shows and explains losses.
func TestTable(t *testing.T) {
	var out bytes.Buffer
	testenv.Must(t, table(&out, []result{good()}))
	for _, want := range []string{"slot", "tshark, capinfos, tcpdump", "lost 1 packets: lost_ring_full"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &out)
		}
	}
}

func TestLostBytes(t *testing.T) {
	r := good()
	r.sent = traffic{packets: 9, bytes: 901, pings: 2, answered: 2}
	r.status.Dropped = nil
	if len(r.problems()) != 1 {
		t.Errorf("bytes sent and written differ, and problems are %v", r.problems())
	}
}

func TestNumber(t *testing.T) {
	printed := "\n       90000 packets outgoing\n    64560000 bytes outgoing\n           3 sec, 272 usec on CPU0 (90000 packets)\n"
	if n, err := number(printed, sentPackets, 1); n != 90000 || err != nil {
		t.Errorf("packets: %d, %v", n, err)
	}
	if n, err := number(printed, sentBytes, 1); n != 64560000 || err != nil {
		t.Errorf("bytes: %d, %v", n, err)
	}
	stat := "| Interval       | Frames |   Bytes  |\n| 0.000 <> 3.258 |  89313 | 64067192 |\n"
	if n, err := number(stat, tsharkCount, 1); n != 89313 || err != nil {
		t.Errorf("tshark: %d, %v", n, err)
	}
	if _, err := number("nothing", sentPackets, 1); err == nil {
		t.Error("nothing is a number")
	}
}

func TestNoteInfos(t *testing.T) {
	var r result
	for _, line := range []string{"f1\t5\t500\t10.5\t11.5\n", "f2\t4\t400\t11.6\t12.5\n", "f3\t0\t0\tn/a\tn/a\n"} {
		if _, err := r.noteInfos(line); err != nil {
			t.Fatal(err)
		}
	}
	if r.fileBytes != 900 || r.first != 10.5 || r.last != 12.5 {
		t.Errorf("%d bytes from %v to %v", r.fileBytes, r.first, r.last)
	}
	for _, line := range []string{"", "f\t5\t500", "f\tfive\t500\t1\t2", "f\t5\t500\tone\t2"} {
		if _, err := r.noteInfos(line); err == nil {
			t.Errorf("%q is an answer of capinfos", line)
		}
	}
}

// TestToolsMissing: the error names every missing program and its package.
func TestToolsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := findTools()
	for _, one := range tools {
		if err == nil || !strings.Contains(err.Error(), one.name+", which is not installed: apt-get install "+one.pkg) {
			t.Errorf("%v says nothing of %s", err, one.name)
		}
	}
}

// TestToolsArePackaged: scripts/apt-demo.txt lists the packages that the demo uses.
func TestToolsArePackaged(t *testing.T) {
	text, err := os.ReadFile("../../../../scripts/apt-demo.txt")
	testenv.Must(t, err)
	var listed []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			listed = append(listed, line)
		}
	}
	var used []string
	for _, one := range tools {
		used = append(used, one.pkg)
	}
	slices.Sort(used)
	if used = slices.Compact(used); !slices.Equal(used, listed) {
		t.Errorf("scripts/apt-demo.txt has %q, the demo uses %q", listed, used)
	}
}

// TestSweep: a demo removes everything that a killed one left, once.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	recordFile = filepath.Join(dir, "record")
	left := filepath.Join(dir, "captures")
	testenv.Must(t, os.MkdirAll(filepath.Join(left, "deep"), 0o700))
	testenv.Must(t, os.WriteFile(recordFile, []byte("dir "+left+"\nnetns unifiedd-demo-none\nunknown thing"), 0o600))
	var out bytes.Buffer
	r, err := openRecord(t.Context(), &out)
	testenv.Must(t, err)
	if exists(left) || !strings.Contains(out.String(), left) {
		t.Errorf("the directory is there (%v), and the demo says %q", exists(left), &out)
	}
	if text, _ := os.ReadFile(recordFile); len(text) != 0 {
		t.Errorf("the record still says %q", text)
	}
	if other, err := lockRecord(); other != nil || err != nil {
		t.Errorf("a second demo runs beside the first: %v", err)
	}
	if err := r.close(); err != nil || exists(recordFile) {
		t.Errorf("the record is left: %v", err)
	}
}

func TestTrafgenConfig(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(trafgenConfig()), "\n")
	if len(lines) != len(sizes) || !strings.Contains(lines[0], "dinc(0,255), fill(0x61, 83)") {
		t.Errorf("%q", lines)
	}
}
