package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/harness"
	"github.com/unifiedd/unifiedd/selftests/harness/programtest"
)

func TestMain(m *testing.M) { programtest.Main(m, main) }

// program runs the program on ordinary pages, so that tests need no huge pages, and returns its
// output.
func program(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(t.Context(), append([]string{"-pages", "ordinary"}, args...), &out, &errs)
	return status, out.String(), errs.String()
}

// places are the targets that users test.
var places = []struct {
	name string
	open func(*testing.T) string
}{
	{"directory", func(t *testing.T) string { return testenv.DiskDir(t) }},
	{"new file", func(t *testing.T) string { return filepath.Join(testenv.DiskDir(t), "new") }},
	{"zram", func(t *testing.T) string { return testenv.Zram(t, 64<<20) }},
	{"loop", func(t *testing.T) string { return testenv.Loop(t, testenv.DiskFile(t, 64<<20), 0) }},
}

func TestSelfTest(t *testing.T) {
	testenv.Root(t)
	for _, p := range places {
		t.Run(p.name, func(t *testing.T) {
			testenv.Leaks(t)
			path := p.open(t)
			status, out, errs := program(t, path)
			if status != 0 || errs != "" || strings.Count(out, "PASS  ") != 14 || !strings.HasSuffix(out, "\nPASS\n") {
				t.Errorf("status %d, %q\n%s", status, errs, out)
			}
			left, err := filepath.Glob(filepath.Join(path, "*"))
			if hidden, _ := filepath.Glob(filepath.Join(path, ".*")); err != nil || len(left)+len(hidden) > 0 {
				t.Errorf("it left %v %v", left, hidden)
			}
			if _, err := os.Stat(path); p.name == "new file" && !os.IsNotExist(err) {
				t.Error("the file it made is still there")
			}
		})
	}
}

func TestSelfTestHugePages(t *testing.T) {
	testenv.Root(t)
	testenv.HugePages(t, 4<<20)
	var out, errs bytes.Buffer
	if status := run(t.Context(), []string{"-json", testenv.DiskDir(t)}, &out, &errs); status != 0 {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	var got struct {
		Passed bool
		Steps  []harness.StepResult
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || !got.Passed || len(got.Steps) != 14 {
		t.Errorf("%v: %s", err, out.String())
	}
	if !strings.Contains(got.Steps[0].Detail, "2 MiB huge pages") {
		t.Errorf("region: %q", got.Steps[0].Detail)
	}
}

// TestVerify: blocks written in every way of forming operations read back correctly.
func TestVerify(t *testing.T) {
	testenv.Root(t)
	for _, p := range places {
		t.Run(p.name, func(t *testing.T) {
			path := p.open(t)
			for _, args := range []string{
				"-rw write -bs 4k -iodepth 1 -size 2m",
				"-rw randwrite -bs 4k -iodepth 64 -size 4m",
				"-rw randwrite -bs 64k -iodepth 4 -size 8m",
				"-rw write -bs 64k -iodepth 4 -size 8m -gather",
			} {
				status, out, errs := program(t, append(strings.Fields(args), "-verify", "-force", "-json", path)...)
				var r result
				if err := json.Unmarshal([]byte(out), &r); status != 0 || err != nil {
					t.Fatalf("%s: status %d, %v, %s", args, status, err, errs)
				}
				if r.Verified == nil || *r.Verified == 0 || *r.Verified > r.Writes || r.Copied != 0 || r.Errors != 0 {
					t.Errorf("%s: %+v", args, r)
				}
			}
		})
	}
}

// TestModes: in a short run of every mode, the numbers agree with each other.
func TestModes(t *testing.T) {
	testenv.Root(t)
	path := testenv.DiskFile(t, 16<<20)
	for _, mode := range modes {
		status, out, errs := program(t, "-rw", mode, "-iodepth", "8", "-runtime", "0.2", "-force", "-json", path)
		var r result
		if err := json.Unmarshal([]byte(out), &r); status != 0 || err != nil {
			t.Fatalf("%s: status %d, %v, %s", mode, status, err, errs)
		}
		n := r.Reads + r.Writes
		if n == 0 || r.Bytes != n*4096 || r.Seconds < 0.2 || r.Enters <= 0 || r.Enters > 3 {
			t.Errorf("%s: %+v", mode, r)
		}
		if (r.Reads > 0) != (mode != "write" && mode != "randwrite") || (r.Writes > 0) != strings.Contains("write randwrite randrw", mode) {
			t.Errorf("%s: %d reads, %d writes", mode, r.Reads, r.Writes)
		}
		if l := r.Latency; l == nil || l.Min <= 0 || l.P50 < l.Min || l.P99 < l.P50 || l.P999 < l.P99 || l.Max < l.P999 {
			t.Errorf("%s: latency %+v", mode, l)
		}
	}
}

func TestPrint(t *testing.T) {
	testenv.Root(t)
	status, out, errs := program(t, "-rw", "randread", "-runtime", "0.1", testenv.DiskDir(t))
	if status != 0 {
		t.Fatal(errs)
	}
	for _, want := range []string{"direct I/O", "fixed buffers", "gathers from fixed buffers", "kIOPS", "99.9 %", "µs per operation", "system calls"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// TestBatches: the number of system calls matches the number of operations submitted and awaited at
// once.
func TestBatches(t *testing.T) {
	testenv.Root(t)
	path := testenv.DiskFile(t, 4<<20)
	enters := func(options ...string) float64 {
		status, out, errs := program(t, append(options, "-rw", "randread", "-iodepth", "16", "-runtime", "0", "-json", path)...)
		var r result
		if err := json.Unmarshal([]byte(out), &r); status != 0 || err != nil || r.Reads != 1024 {
			t.Fatalf("status %d, %v, %s, %+v", status, err, errs, r)
		}
		return r.Enters
	}
	if n := enters("-iodepth_batch", "8", "-iodepth_batch_complete_min", "8"); n > 0.25 {
		t.Errorf("eight at once: %v system calls for each operation", n)
	}
	if n := enters("-iodepth_batch", "1"); n < 0.99 {
		t.Errorf("each at once: %v system calls for each operation", n)
	}
}

// TestCorruption: the program detects one changed byte on the disk.
func TestCorruption(t *testing.T) {
	testenv.Root(t)
	path := filepath.Join(testenv.DiskDir(t), "f")
	if status, _, errs := program(t, "-rw", "write", "-verify", "-size", "1m", path); status != 0 {
		t.Fatal(errs)
	}
	if status, _, errs := program(t, "-rw", "randread", "-verify", path); status != 0 {
		t.Fatal(errs)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	testenv.Must(t, err)
	defer f.Close()
	if _, err := f.WriteAt([]byte("x"), 123456); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := program(t, "-rw", "read", "-verify", path); status != 1 || !strings.Contains(errs, "byte 576 of the block at 122880 is wrong") {
		t.Errorf("status %d, %s", status, errs)
	}
	if status, _, errs := program(t, "-rw", "read", "-verify", "-bs", "8k", path); status != 1 || !strings.Contains(errs, "written with -bs 4096") {
		t.Errorf("status %d, %s", status, errs)
	}
}

// TestRefusals: for each mistake, the error says what to do.
func TestRefusals(t *testing.T) {
	testenv.Root(t)
	dir := testenv.DiskDir(t)
	dear := filepath.Join(dir, "dear")
	testenv.Must(t, os.WriteFile(dear, []byte("my thesis"), 0o600))
	zram := testenv.Zram(t, 1<<20)
	for _, c := range []struct {
		args   string
		status int
		want   string
	}{
		{dear, 1, "-force writes over it"},
		{"-rw write " + dear, 1, "-force writes over it"},
		{"-rw read " + filepath.Join(dir, "none"), 1, "write it first, with -rw write"},
		{"-rw read " + dear, 1, "too few for one block"},
		{"-rw write -size 1t " + zram, 1, "has only 1048576 bytes"},
		{"-rw write -bs 512 " + zram, 1, "multiples of 4096"},
		{zram, 1, "the self-test needs"},
		{"-rw write /dev/shm", 1, "-buffered allows it"},
		{"-rw read /dev/null", 1, "neither a file nor a block device"},
		{"", 2, "name one target"},
		{"a b", 2, "name one target"},
		{"-rw sideways x", 2, "randread"},
		{"-rw read -bs 777 x", 2, "multiple of 512"},
		{"-rw read -bs 4q x", 2, "4096, 4k or 1g"},
		{"-rw read -iodepth 0 x", 2, "from 1 to 4096"},
		{"-rw read -iodepth_batch 0 x", 2, "from 1 to 4096"},
		{"-rw read -iodepth 4 -iodepth_batch_complete_min 5 x", 2, "from 1 to 4"},
		{"-rw read -runtime soon x", 2, "2m30s"},
		{"-rw randrw -verify x", 2, "randwrite"},
		{"-rw write -verify -runtime 5 x", 2, "-size"},
		{"-rw read -bs 512 -gather x", 2, "multiple of 4096"},
		{"-rw randrw -rwmixread 101 x", 2, "0 to 100"},
		{"-iodepth 4 x", 2, "-iodepth needs -rw"},
		{"-pages 3m x", 2, "2m, 1g or ordinary"},
		{"-wrong x", 2, "-help lists"},
	} {
		status, out, errs := program(t, strings.Fields(c.args)...)
		if status != c.status || !strings.Contains(out+errs, c.want) {
			t.Errorf("%q: status %d, want %q in\n%s%s", c.args, status, c.want, out, errs)
		}
	}
	if text, err := os.ReadFile(dear); err != nil || string(text) != "my thesis" {
		t.Errorf("the file now holds %q, %v", text, err)
	}
}

func TestHelp(t *testing.T) {
	if status, _, errs := program(t, "-help"); status != 0 || !strings.Contains(errs, "-iodepth") || !strings.Contains(errs, "/dev/ngXnY") {
		t.Errorf("status %d: %s", status, errs)
	}
}

// TestInterrupt: an interrupt ends a run without a time limit.
func TestInterrupt(t *testing.T) {
	testenv.Root(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var out, errs bytes.Buffer
	status := run(ctx, []string{"-pages", "ordinary", "-rw", "randread", "-runtime", "1h", "-size", "4m", testenv.DiskDir(t)}, &out, &errs)
	if status != 1 || !strings.Contains(errs.String(), "context") {
		t.Errorf("status %d: %s", status, errs.String())
	}
}
