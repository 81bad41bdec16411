package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/index"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// questions are filters for a capture of talk. narrow says that an index can skip batches for the filter.
var questions = []struct {
	filter  string
	narrow  bool
	tcpdump bool // the filter means the same to tcpdump
}{
	{"host 10.0.1.7 and port 443", true, true},
	{"host 10.0.1.7 and host 10.0.255.3 and tcp port 80", true, true},
	{"src host 10.0.0.77", true, false},
	{"dst 10.0.0.77 and udp", true, true},
	{"port 20777", true, false}, // some packets have a VLAN tag
	{"ip and tcp and port 20771 and not vlan", false, false},
	{"host 2001:db8::33", true, true},
	{"ip6 host 2001:db8::33 and src port 53", true, true},
	{"vlan 2 and port 20777", true, false},
	{"host 10.0.1.7 or host 10.0.1.9", true, true},
	{"host 10.0.1.7 or icmp", true, true},
	{"not host 10.0.1.7", false, false},
	{"host 10.0.1.7 and not port 443", true, true},
	{"arp", true, true},
	{"ip proto 47 or sctp", true, true},
	{"ether proto 0x88cc", true, true},
	{"net 10.0.1.0/24 and dst port 443", false, false},
	{"portrange 20100-20110", true, false},
	{"ip6 and udp", false, false},
	{"host 192.0.2.99", true, true}, // no packet has that address
	{"port 53", false, false},
	{"greater 1", false, false},
}

// TestIndex: an export with an index equals one without, packet for packet. If the filter means the
// same to tcpdump, it also equals what tcpdump finds.
func TestIndex(t *testing.T) {
	dir := t.TempDir()
	k := newTalk(7)
	var files []string
	for i := range 2 {
		files = append(files, filepath.Join(dir, fmt.Sprintf("cap-%d.pcapng", i)))
		talkSegment(t, files[i], byte(i), 6<<20, k)
	}
	last := k.n
	middle := begin.Add(time.Duration(last/2) * talkStep)
	times := [][]string{nil, {"--from", stamp(uint64(middle.UnixNano())), "--to", stamp(uint64(middle.Add(time.Millisecond).UnixNano()))}}
	type ask struct{ question, span int }
	without := map[ask]exported{}
	for q := range questions {
		for s := range times {
			if a, ok := exportOf(t, files, times[s], questions[q].filter); ok {
				without[ask{q, s}] = a
			}
		}
	}
	index := append([]string{"index"}, files...)
	if said, status := runSays(index...); status != 0 || strings.Count(said, "packets in") != 2 {
		t.Fatalf("%d: %s", status, said)
	}
	for a, before := range without {
		q := questions[a.question]
		after, _ := exportOf(t, files, times[a.span], q.filter)
		if !bytes.Equal(before.file, after.file) {
			t.Errorf("%q %v: %d packets by the index, %d without", q.filter, times[a.span], after.packets, before.packets)
		}
		if narrowed := after.passed > 0; narrowed != (q.narrow || a.span > 0) {
			t.Errorf("%q %v: passed over %d batches: %s", q.filter, times[a.span], after.passed, after.said)
		}
		if a.span == 0 && q.tcpdump {
			sameAsTcpdump(t, files, q.filter, after)
		}
	}
}

// exported is the output of an export.
type exported struct {
	file            []byte
	packets, passed int
	said            string
}

var (
	saidPackets = regexp.MustCompile(`(\d+) packets exported`)
	saidPassed  = regexp.MustCompile(`(\d+) batch(?:es)? passed over`)
)

// exportOf exports packets of files. ok is false if export does not accept the filter.
func exportOf(t *testing.T, files, more []string, filter string) (a exported, ok bool) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.pcapng")
	args := append([]string{"export", "-w", out}, more...)
	for _, f := range files {
		args = append(args, "-r", f)
	}
	said, status := runSays(append(args, filter)...)
	if status == 2 && strings.Contains(said, "filter") {
		return a, false
	}
	if status != 0 {
		t.Fatalf("%v: %d: %s", args, status, said)
	}
	raw, err := os.ReadFile(out)
	testenv.Must(t, err)
	return exported{raw, number(saidPackets, said), number(saidPassed, said), said}, true
}

func number(in *regexp.Regexp, said string) int {
	m := in.FindStringSubmatch(said)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

func runSays(args ...string) (said string, status int) {
	var out bytes.Buffer
	status = run(args, &out, &out)
	return out.String(), status
}

// sameAsTcpdump compares packets and their order with what tcpdump finds in each file.
func sameAsTcpdump(t *testing.T, files []string, filter string, got exported) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "got.pcapng")
	testenv.Must(t, os.WriteFile(name, got.file, 0o600))
	ours, theirs := "", ""
	for _, f := range files {
		theirs += tcpdumpOf(t, f, filter)
	}
	if got.packets > 0 {
		ours = tcpdumpOf(t, name, "")
	}
	if ours != theirs {
		t.Errorf("%q: %d lines, and tcpdump finds %d", filter, strings.Count(ours, "\n"), strings.Count(theirs, "\n"))
	}
}

// tcpdumpOf returns what tcpdump prints of the packets of a file that match a filter.
func tcpdumpOf(t *testing.T, file, filter string) string {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, "tcpdump"), "-r", file, "-n", "-tt", "--nano", "-q", "-e", filter)
	out, err := cmd.Output()
	testenv.Mustf(t, err, "%v", cmd.Args)
	return string(out)
}

// TestIndexIsNotTrusted: export does not use an index that does not belong to the segment as it is,
// or that is damaged, and reports it.
func TestIndexIsNotTrusted(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a.pcapng")
	talkSegment(t, file, 1, 2<<20, newTalk(1))
	other := filepath.Join(dir, "b.pcapng")
	talkSegment(t, other, 2, 2<<20, newTalk(2))
	if said, status := runSays("index", file, other); status != 0 {
		t.Fatal(said)
	}
	whole, segment := read(t, file+index.Suffix), read(t, file)
	want, _ := exportOf(t, []string{file}, nil, "host 10.0.1.7")
	if want.passed == 0 {
		t.Fatalf("the index is not used: %s", want.said)
	}
	turned := func(at int) []byte {
		b := bytes.Clone(whole)
		b[at] ^= 1
		return b
	}
	for name, c := range map[string]struct {
		index, segment []byte
		said           string
	}{
		"of another segment":        {read(t, other+index.Suffix), segment, "not of this segment"},
		"a wrong byte in front":     {turned(40), segment, "damaged: a checksum is wrong"},
		"a wrong byte behind":       {turned(len(whole) - 9), segment, "damaged: a checksum is wrong"},
		"cut":                       {whole[:len(whole)-1], segment, "damaged: it has "},
		"cut to nothing":            {nil, segment, "damaged: it ends too early"},
		"something else":            {bytes.Repeat([]byte("no"), 1000), segment, "damaged: it does not begin"},
		"of a segment that is less": {whole, segment[:len(segment)-4096], "the segment has "},
	} {
		write(t, file, c.segment)
		write(t, file+index.Suffix, c.index)
		got, _ := exportOf(t, []string{file}, nil, "host 10.0.1.7")
		if !bytes.Equal(got.file, want.file) || !strings.Contains(got.said, c.said) || got.passed > 0 ||
			!strings.Contains(got.said, "read whole, with an index that is not used: 1 segment") {
			t.Errorf("%s: %s", name, got.said)
		}
	}
	write(t, file+index.Suffix, whole)
	write(t, file, segment) // changed in place, later
	testenv.Must(t, os.Chtimes(file, time.Time{}, time.Now().Add(time.Second)))
	if got, _ := exportOf(t, []string{file}, nil, "host 10.0.1.7"); !strings.Contains(got.said, "the segment was changed later") {
		t.Errorf("changed later: %s", got.said)
	}
}

// TestIndexIsRefused: index refuses a segment that is not closed and a file that is not a segment,
// and leaves nothing behind.
func TestIndexIsRefused(t *testing.T) {
	dir := t.TempDir()
	open, none, good := filepath.Join(dir, "open.pcapng"), filepath.Join(dir, "none"), filepath.Join(dir, "good.pcapng")
	talkSegment(t, good, 1, 1<<20, newTalk(1))
	raw := read(t, good)
	write(t, open, raw[:len(raw)-4096])
	write(t, none, []byte("no capture"))
	said, status := runSays("index", open, none, good)
	for _, want := range []string{open + ": the segment is not closed", none + ": not a capture segment of unifiedd", good + ".idx: "} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing in %s", want, said)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.idx*")); status == 0 || len(left) != 1 || left[0] != good+index.Suffix {
		t.Errorf("status %d, left %v", status, left)
	}
}

// TestIndexOfTorn: an export with an index skips and counts torn batches as one without an index does.
func TestIndexOfTorn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.pcapng")
	talkSegment(t, file, 1, 4<<20, newTalk(1))
	raw := read(t, file)
	for _, at := range []int{talkBatch*3 + 5000, talkBatch*9 + 5000, talkBatch*20 + 5000} {
		clear(raw[at:][:8192])
	}
	write(t, file, raw)
	before, _ := exportOf(t, []string{file}, nil, "host 10.0.1.7")
	if said, status := runSays("index", file); status != 0 {
		t.Fatal(said)
	}
	after, _ := exportOf(t, []string{file}, nil, "host 10.0.1.7")
	if !bytes.Equal(before.file, after.file) || after.passed == 0 || !strings.Contains(before.said, "skipped: 3 batches") ||
		!strings.Contains(after.said, "skipped: 3 batches") {
		t.Errorf("%s\n%s", before.said, after.said)
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(name)
	testenv.Must(t, err)
	return raw
}

func write(t *testing.T, name string, raw []byte) {
	t.Helper()
	testenv.Must(t, os.WriteFile(name, raw, 0o600))
}
