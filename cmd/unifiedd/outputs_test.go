package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/index"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestIndexFollowsNoLink: if the owner of a segment's directory puts a link where the index will
// be, index does not change the link's target.
func TestIndexFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	path, victim := filepath.Join(dir, "f-000001.pcapng"), filepath.Join(t.TempDir(), "victim")
	talkSegment(t, path, 1, 1<<20, newTalk(1))
	write(t, victim, []byte("root's secret"))
	for _, name := range []string{path + index.Suffix, path + index.Suffix + index.Unfinished} {
		testenv.Must(t, os.Symlink(victim, name))
		said, status := runSays("index", path)
		if got := read(t, victim); string(got) != "root's secret" {
			t.Fatalf("%s: status %d, %s; the victim has %q", name, status, said, got)
		}
		testenv.Must(t, os.Remove(name))
	}
	if said, status := runSays("index", path); status != 0 {
		t.Fatal(said)
	}
	if info, err := os.Lstat(path + index.Suffix); err != nil || !info.Mode().IsRegular() {
		t.Errorf("%v: %v", info, err)
	}
}

// TestOutputsStay: a command that fails leaves its output file unchanged, and no other file beside it.
func TestOutputsStay(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	whole, text := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "text")
	write(t, whole, captured(t, pcapng.SegmentID{1}, false, 0, 0, 30, "a"))
	write(t, text, []byte("no capture"))
	empty := filepath.Join(t.TempDir(), "empty")
	write(t, empty, nil)
	old, link := filepath.Join(dir, "old"), filepath.Join(dir, "link")
	write(t, old, []byte("yesterday's export"))
	testenv.Must(t, os.Symlink(old, link))
	for name, args := range map[string][]string{
		"export of nothing":                {"export", "-r", whole + "s", "-w", old},
		"export of text":                   {"export", "-r", text, "-w", old},
		"export of an empty file":          {"export", "-r", empty, "-w", old},
		"export, the second is text":       {"export", "-r", whole, "-r", text, "-w", old},
		"export to what is read":           {"export", "-r", old, "-w", old},
		"export to a link":                 {"export", "-r", whole, "-w", link},
		"export to a directory":            {"export", "-r", whole, "-w", dir},
		"export of a directory":            {"export", "-r", dir, "-w", old},
		"capture of no interface":          {"capture", "-i", "no-such-link", "-w", old},
		"capture of no queue":              {"capture", "-i", "lo", "--take=anyway", "--queues", "77", "-w", old},
		"capture with too little room":     {"capture", "-i", "lo", "-w", old, "--keep-free", "100%"},
		"capture to a link":                {"capture", "-i", "lo", "-w", link},
		"capture that rotates, to a link":  {"capture", "-i", "lo", "-C", "1", "-w", link},
		"capture of no interface, rotates": {"capture", "-i", "no-such-link", "-C", "1", "-w", old},
	} {
		t.Run(name, func(t *testing.T) {
			status, _, said := finish(t, exec.Command("timeout", append([]string{"60", program(t)}, args...)...))
			if status == 0 || !strings.HasPrefix(said, "unifiedd: ") && !strings.Contains(said, "\nunifiedd: ") {
				t.Errorf("status %d: %s", status, said)
			}
			if got := read(t, old); string(got) != "yesterday's export" {
				t.Errorf("the old file has %d bytes", len(got))
			}
			if names := inDir(t, dir); fmt.Sprint(names) != "[link old]" {
				t.Errorf("the directory has %v", names)
			}
		})
	}
	var out, errs bytes.Buffer
	if status := run([]string{"export", "-r", whole, "-w", old}, &out, &errs); status != 0 || bytes.Equal(read(t, old), []byte("yesterday's export")) {
		t.Errorf("status %d: %s", status, errs.String())
	}
}

// TestExportCaptures: export reads captures of other programs, whole or filtered, compressed or truncated.
// Of a truncated one it exports all packets that are there, and its exit status reports the truncation.
func TestExportCaptures(t *testing.T) {
	dir := t.TempDir()
	segment, plain := filepath.Join(dir, "segment"), filepath.Join(dir, "plain.pcap")
	write(t, segment, captured(t, pcapng.SegmentID{1}, false, 0, 0, 30, "a"))
	if out, err := exec.Command("tshark", "-r", segment, "-F", "pcap", "-w", plain).CombinedOutput(); err != nil {
		t.Fatalf("tshark: %v: %s", err, out)
	}
	if out, err := exec.Command("sh", "-c", "gzip -k "+plain+" && zstd -q "+plain+" && head -c 500 "+plain+" >"+dir+"/cut").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, c := range map[string]struct{ status, packets int }{"plain.pcap": {0, 30}, "plain.pcap.gz": {0, 30}, "plain.pcap.zst": {0, 30}, "cut": {exitFailed, -1}} {
		to := filepath.Join(dir, "out")
		said, status := runSays("export", "-r", filepath.Join(dir, name), "-w", to)
		out, err := exec.Command("sh", "-c", "tshark -r "+to+" 2>/dev/null | wc -l").Output()
		got := strings.TrimSpace(string(out))
		if err != nil || status != c.status || c.packets >= 0 && got != fmt.Sprint(c.packets) || got == "0" {
			t.Errorf("%s: status %d, %s packets, %v: %s", name, status, got, err, said)
		}
	}
}
