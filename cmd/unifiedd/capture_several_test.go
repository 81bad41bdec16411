package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestCaptureSeveral: a capture from two interfaces to one file records the interface of each
// packet. The export has the packets in the order of their times.
func TestCaptureSeveral(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	p.B.Run(t, "ip", "link", "add", "other0", "type", "veth", "peer", "name", "other1")
	p.B.Run(t, "ip", "link", "set", "other0", "up")
	p.B.Run(t, "ip", "link", "set", "other1", "up")
	background(t, p)
	second := *p
	second.A = p.B
	second.A.Ifname = "other0"
	number, _, _ := strings.Cut(p.B.Run(t, "ip", "-o", "link", "show", "dev", "other0"), ":")
	link, err := strconv.Atoi(number)
	testenv.Must(t, err)
	second.A.Index = link
	background(t, &second)
	dir := testenv.DiskDir(t)
	file, ordered := filepath.Join(dir, "both.pcapng"), filepath.Join(dir, "ordered.pcapng")
	status, _, stderr := captureOn(t, p, "--ifcomment", "toward the exchange", "-i", "other1", "--ifcomment", "toward us", "--capture-comment", "case 7", "-w", file, "-c", "3000", "--ring", "512", "udp port 5000")
	if status != 0 || !strings.Contains(stderr, "3000 packets captured") || !strings.Contains(stderr, p.B.Ifname+", other1") {
		t.Fatalf("status %d: %s", status, stderr)
	}
	var out, errs strings.Builder
	if status := run([]string{"export", "-r", file, "-w", ordered}, &out, &errs); status != 0 {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	text, err := exec.Command(testenv.Tool(t, "tshark"), "-r", ordered, "-T", "fields", "-e", "frame.interface_name", "-e", "frame.time_epoch").Output()
	testenv.Must(t, err)
	of, times := map[string]int{}, []float64{}
	for line := range strings.Lines(string(text)) {
		name, at, _ := strings.Cut(strings.TrimSpace(line), "\t")
		seconds, err := strconv.ParseFloat(at, 64)
		testenv.Must(t, err)
		of[name]++
		times = append(times, seconds)
	}
	if len(of) != 2 || of[p.B.Ifname] == 0 || of["other1"] == 0 || len(times) != 3000 {
		t.Errorf("packets by interface: %v", of)
	}
	if !slices.IsSorted(times) {
		t.Error("the export is not in the order of times")
	}
	if name := capinfos(t, file, "Name", "="); name != p.B.Ifname {
		t.Errorf("capinfos calls the first interface %q", name)
	}
	checkComments(t, file)
	checkComments(t, ordered)
	for _, name := range []string{p.B.Ifname, "other1"} { // free again, without the program
		testenv.Wait(t, 10*time.Second, "no program on "+name, func() bool {
			return !strings.Contains(p.B.Run(t, "ip", "link", "show", "dev", name), "xdp")
		})
	}
}

// checkComments checks that our reader and tshark find the comments of each interface, and that
// ours finds the file's comment.
func checkComments(t *testing.T, file string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	testenv.Must(t, err)
	text, err := exec.Command(testenv.Tool(t, "capinfos"), file).Output()
	testenv.Must(t, err)
	for _, comment := range []string{"toward the exchange", "toward us", "case 7"} {
		if !strings.Contains(string(text), comment) {
			t.Errorf("capinfos does not say %q:\n%s", comment, text)
		}
	}
	head, err := pcapng.ReadHead(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		return // an export has no marks
	}
	if head.Comment() != "case 7" {
		t.Errorf("the file says %q of itself", head.Comment())
	}
	for i := range head.Interfaces {
		one := head.Interface(i)
		if want := map[bool]string{true: "toward us", false: "toward the exchange"}[one.Name == "other1"]; one.Comment != want {
			t.Errorf("%s says %q, not %q", one.Name, one.Comment, want)
		}
	}
}

// TestCommentOfNone: capture refuses a comment without an interface before it.
func TestCommentOfNone(t *testing.T) {
	var out, errs strings.Builder
	if status := run([]string{"capture", "--ifcomment", "x", "-i", "eth0", "-w", "-"}, &out, &errs); status != exitUsage || !strings.Contains(errs.String(), "the -i before it") {
		t.Errorf("status %d: %s", status, errs.String())
	}
}
