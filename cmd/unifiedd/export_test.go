package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/ring"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// begin is the time of packet 0. Each packet is one second later than the one before.
var begin = time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)

// datagram returns a frame to a UDP port: 53 for even packets, 5000 for odd ones.
func datagram(i uint64) []byte {
	p := make([]byte, 60)
	binary.BigEndian.PutUint16(p[12:], 0x0800)
	p[14], p[23] = 0x45, 17
	port := uint16(53)
	if i%2 == 1 {
		port = 5000
	}
	binary.BigEndian.PutUint16(p[36:], port)
	binary.BigEndian.PutUint64(p[42:], i)
	return p
}

// captured returns a segment with one batch of n packets, numbered from first.
func captured(t *testing.T, id pcapng.SegmentID, numbered bool, base, first, n uint64, queue string) []byte {
	t.Helper()
	out, err := pcapng.AppendSegmentHead(nil, pcapng.Section{}, []pcapng.Interface{{Name: "eth1", Description: queue, LinkType: 1}},
		pcapng.Segment{ID: id, Align: 512, FirstPacket: base})
	testenv.Must(t, err)
	b := pcapng.Batch{Segment: id, Align: 512, Sequence: 1, Offset: uint64(len(out)), Packets: uint32(n), FirstPacket: base + first}
	out = append(out, make([]byte, pcapng.MinMarkLen)...)
	extra := uint32(0)
	if numbered {
		extra = pcapng.NumberLen
	}
	for i := first; i < first+n; i++ {
		p, at := datagram(i), len(out)
		length := uint32(len(p))
		block := pcapng.PacketBlockLen(length+extra, 4)
		out = append(out, make([]byte, block)...)
		pcapng.PutPacket(out[at:], 0, uint64(begin.Add(time.Duration(i)*time.Second).UnixNano()), p, length, block)
		if numbered {
			pcapng.PutNumberedTail(out[at+pcapng.PacketHeaderLen+len(p):], length, block, base+i)
		}
	}
	pad := make([]byte, pcapng.PaddingLen(int64(len(out)), 512))
	pcapng.PutPadding(pad)
	out = append(out, pad...)
	b.Length = uint32(uint64(len(out)) - b.Offset)
	pcapng.PutBatchHeader(out[b.Offset:][:pcapng.MinMarkLen], &b)
	return out
}

// ringFile makes a file with a ring of three segments: packets 0 to 19, packets 20 to 39 of another
// interface, and packets 40 to 59.
func ringFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "ring")
	f, err := os.Create(name)
	testenv.Must(t, err)
	defer f.Close()
	testenv.Must(t, f.Truncate(8<<20))
	r, err := ring.Create(f, 8<<20, 2<<20)
	testenv.Must(t, err)
	for i := range uint64(3) {
		raw := captured(t, r.SegmentID(7+i), true, ring.Base(7), 20*i, 20, []string{"queue 0", "queue 1"}[i%2])
		if _, err := r.Slot(f, 7+i).WriteAt(raw, 0); err != nil {
			t.Fatal(err)
		}
	}
	return name
}

// exportTo runs export and returns the numbers of the packets that it wrote.
func exportTo(t *testing.T, args ...string) (numbers []uint64, interfaces map[int]int, said string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.pcapng")
	var stdout, stderr bytes.Buffer
	if status := run(append([]string{"export", "-w", out}, args...), &stdout, &stderr); status != 0 {
		t.Fatalf("status %d: %s", status, stderr.String())
	}
	all, err := testenv.ReadCapture(t, out)
	testenv.Must(t, err)
	interfaces = map[int]int{}
	for _, p := range all {
		n := binary.BigEndian.Uint64(p.Data[42:])
		if !bytes.Equal(p.Data, datagram(n)) || p.Time != begin.Add(time.Duration(n)*time.Second).UnixNano() {
			t.Errorf("packet %d at %d: %x", n, p.Time, p.Data)
		}
		numbers = append(numbers, n)
		interfaces[p.Interface]++
	}
	return numbers, interfaces, stderr.String()
}

func TestExportRing(t *testing.T) {
	name := ringFile(t)
	before, err := os.ReadFile(name)
	testenv.Must(t, err)
	for label, c := range map[string]struct {
		args        []string
		first, last uint64
		count       int
		segments    string
	}{
		"everything":        {nil, 0, 59, 60, "3 segments and 3 batches"},
		"from":              {[]string{"--from", "2026-11-20T14:00:25Z"}, 25, 59, 35, "2 segments and 2 batches"},
		"to":                {[]string{"--to", "@1795183210"}, 0, 9, 10, "1 segment and 1 batch"},
		"a filter":          {[]string{"udp", "port", "53"}, 0, 58, 30, "3 segments and 3 batches"},
		"at an edge":        {[]string{"--from", "2026-11-20T14:00:20Z", "--to", "2026-11-20T14:00:41Z"}, 20, 40, 21, "3 segments and 3 batches"},
		"times and filters": {[]string{"--from", "2026-11-20T14:00:25Z", "--to", "2026-11-20T14:00:30Z", "not port 53"}, 25, 29, 3, "1 segment and 1 batch"},
	} {
		got, interfaces, said := exportTo(t, append([]string{"-r", name}, c.args...)...)
		if len(got) != c.count || got[0] != c.first || got[len(got)-1] != c.last || !strings.Contains(said, c.segments) ||
			strings.Contains(said, "not read: ") != (c.segments[0] != '3') {
			t.Errorf("%s: %v\n%s", label, got, said)
		}
		if label == "everything" && (interfaces[0] != 40 || interfaces[1] != 20) {
			t.Errorf("packets of interfaces: %v", interfaces)
		}
	}
	if after, err := os.ReadFile(name); err != nil || !bytes.Equal(before, after) {
		t.Errorf("export has written to what it read: %v", err)
	}
}

// TestExportDamaged: export reads a ring without a superblock and with a torn batch.
func TestExportDamaged(t *testing.T) {
	name := ringFile(t)
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	testenv.Must(t, err)
	defer f.Close()
	for _, at := range []int64{20, 1<<20 + 2<<20 + 1000} { // generation 7 is in the slot after the first
		if _, err := f.WriteAt([]byte{0xee, 0xee, 0xee, 0xee}, at); err != nil {
			t.Fatal(err)
		}
	}
	got, _, said := exportTo(t, "-r", name)
	if len(got) != 40 || got[0] != 20 || !strings.Contains(said, "superblock") || !strings.Contains(said, "skipped: 1 batch") {
		t.Errorf("%v\n%s", got, said)
	}
}

// TestExportSegments: export reads segment files in the given order.
func TestExportSegments(t *testing.T) {
	var args []string
	for i := range uint64(2) {
		name := filepath.Join(t.TempDir(), "segment.pcapng")
		testenv.Must(t, os.WriteFile(name, captured(t, pcapng.SegmentID{byte(i)}, false, 0, 10*i, 10, "queue 0"), 0o600))
		args = append(args, "-r", name)
	}
	if got, interfaces, _ := exportTo(t, args...); len(got) != 20 || got[19] != 19 || interfaces[0] != 20 {
		t.Errorf("%v of interfaces %v", got, interfaces)
	}
}

// TestExportHeadless: export reports a segment with a damaged head as a gap, in a file and on a
// ring, and exports all others.
func TestExportHeadless(t *testing.T) {
	dir := t.TempDir()
	var names []string
	for i := range uint64(3) {
		names = append(names, filepath.Join(dir, fmt.Sprintf("md-20261120T140000Z-%06d.pcapng", i+1)))
		testenv.Must(t, os.WriteFile(names[i], captured(t, pcapng.SegmentID{byte(i)}, false, 0, 10*i, 10, "queue 0"), 0o600))
	}
	ring := ringFile(t)
	for _, c := range []struct {
		label string
		harm  func() error
		args  []string
		count int
		says  string
	}{
		{"cut to nothing", func() error { return os.Truncate(names[1], 0) }, []string{"-r", names[0], "-r", names[1], "-r", names[2]}, 20, names[1]},
		{"a byte changed", func() error { return flip(names[2], 12) }, []string{"-r", names[0], "-r", names[2]}, 10, names[2]},
		{"on a ring", func() error { return flip(ring, 1<<20+2<<20+9) }, []string{"-r", ring}, 40, "1 segment of a ring"},
	} {
		testenv.Must(t, c.harm())
		out := filepath.Join(dir, "out.pcapng")
		var stdout, stderr bytes.Buffer
		if status := run(append([]string{"export", "-w", out}, c.args...), &stdout, &stderr); status != exitFailed ||
			!strings.Contains(stderr.String(), "the head is not readable") || !strings.Contains(stderr.String(), c.says) {
			t.Errorf("%s: status %d: %s", c.label, status, stderr.String())
		}
		if all, err := testenv.ReadCapture(t, out); err != nil || len(all) != c.count {
			t.Errorf("%s: %d packets, %v", c.label, len(all), err)
		}
	}
}

// flip changes a byte of a file.
func flip(name string, at int64) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	b[at] ^= 0x55
	return os.WriteFile(name, b, 0o600)
}

func TestExportRefuses(t *testing.T) {
	name := ringFile(t)
	empty := filepath.Join(t.TempDir(), "empty")
	testenv.Must(t, os.WriteFile(empty, nil, 0o600))
	for label, c := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"nothing to read":   {nil, exitUsage, "name a FILE"},
		"no such file":      {[]string{"-r", "/nowhere"}, exitFailed, "/nowhere"},
		"no capture":        {[]string{"-r", empty}, exitFailed, empty},
		"onto itself":       {[]string{"-r", name, "-w", name}, exitFailed, "it is the input"},
		"no time":           {[]string{"-r", name, "--from", "noon"}, exitUsage, `"noon"`},
		"times in disorder": {[]string{"-r", name, "--from", "@20", "--to", "@10"}, exitUsage, "not after"},
		"a broken filter":   {[]string{"-r", name, "prot", "9"}, exitUsage, "prot"},
		"a full device":     {[]string{"-r", name, "-w", "/dev/full"}, exitFailed, "write /dev/full: no space left on device"},
	} {
		var stdout, stderr bytes.Buffer
		if status := run(append([]string{"export"}, c.args...), &stdout, &stderr); status != c.status || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%s: status %d: %s", label, status, stderr.String())
		}
	}
}

func TestInstants(t *testing.T) {
	zone := time.FixedZone("here", 3600)
	now := time.Date(2026, 11, 20, 23, 59, 0, 0, zone)
	for text, want := range map[string]time.Time{
		"2026-11-20T14:00:00Z":      begin,
		"2026-11-20T14:00:00+01:00": begin.Add(-time.Hour),
		"2026-11-20 15:00:00":       begin,
		"2026-11-20T15:00:00.25":    begin.Add(250 * time.Millisecond),
		"15:00":                     begin,
		"1795183200.5":              begin.Add(time.Second / 2),
		"now":                       now,
		"-1h":                       now.Add(-time.Hour),
		"-1h30m":                    now.Add(-90 * time.Minute),
		"-2d":                       now.AddDate(0, 0, -2),
		"-1d1h":                     now.AddDate(0, 0, -1).Add(-time.Hour),
		"@1795183200.5":             begin.Add(time.Second / 2),
		"2026-11-20":                time.Date(2026, 11, 20, 0, 0, 0, 0, zone),
	} {
		if got, err := instant("--from", text, now); err != nil || got != uint64(want.UnixNano()) {
			t.Errorf("%s: %v, %v, not %v", text, time.Unix(0, int64(got)), err, want)
		}
	}
	for _, text := range []string{"x", "@", "-", "-x", "--1h", "-1", "-1d-1h", "yesterday", "2026", "@1.0000000001", "@-1", "1969-01-01", "9999-01-01", "25:00"} {
		if got, err := instant("--from", text, now); err == nil {
			t.Errorf("%s: %d", text, got)
		}
	}
}

// TestExportNames: export takes files as arguments, before the filter, and the prefix of a flow's segments. A word that is
// neither is an error that says so, and nothing is printed of an export that did not begin.
func TestExportNames(t *testing.T) {
	dir := t.TempDir()
	prefix := filepath.Join(dir, "feed")
	var names []string
	for i, flow := range []string{"feed", "feed", "feed-b"} {
		name := filepath.Join(dir, fmt.Sprintf("%s-20261120T14050%dZ-00000%d.pcapng", flow, i, i+1))
		write(t, name, captured(t, pcapng.SegmentID{1}, false, uint64(i), 0, 10, "a"))
		names = append(names, name)
	}
	for want, args := range map[string][]string{
		"30 packets exported": {names[0], names[1], names[2]},
		"20 packets exported": {prefix},
		"10 packets exported": {prefix + "-b"},
		"0 packets exported":  {names[0], "-r", names[1], "tcp", "port", "9"},
	} {
		var out, errs strings.Builder
		if status := run(append([]string{"export"}, args...), &out, &errs); status != 0 || !strings.HasPrefix(errs.String(), want) {
			t.Errorf("%v: status %d, and not %q: %s", args, status, want, &errs)
		}
	}
	for want, args := range map[string][]string{
		"no-such.pcapng: there is no such file": {"no-such.pcapng"},
		"an argument is missing":                nil,
		"and there is no file no-such.pcapng":   {names[0], "no-such.pcapng"},
		"no such file":                          {"-r", prefix + "s"},
	} {
		var out, errs strings.Builder
		if status := run(append([]string{"export"}, args...), &out, &errs); status == 0 || !strings.Contains(errs.String(), want) || strings.Contains(errs.String(), "exported") {
			t.Errorf("%v: status %d, and not %q: %s", args, status, want, &errs)
		}
	}
	if said, _ := runSays("index", prefix); !strings.Contains(said, names[0]) || !strings.Contains(said, names[1]) || strings.Contains(said, names[2]) {
		t.Errorf("index of a prefix: %s", said) // each is refused, as nothing has closed it
	}
}
