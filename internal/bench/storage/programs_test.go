package storage

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestReadResults(t *testing.T) {
	r, err := fioRead([]byte("fio: a warning\n{\"jobs\": [{\"error\": 0, \"read\": {\"total_ios\": 10, \"iops\": 5.5}, \"write\": {\"total_ios\": 2, \"iops\": 1}}]}"))
	if err != nil || r.operations != 12 || r.rate != 6.5 {
		t.Errorf("%+v, %v", r, err)
	}
	for _, bad := range []string{"", "no", `{"jobs": []}`, `{"jobs": [{"error": 5}]}`} {
		if _, err := fioRead([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	r, err = oursRead([]byte(`{"reads": 3, "writes": 4, "iops": 7.25}`))
	if err != nil || r.operations != 7 || r.rate != 7.25 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestSameWork: both command lines ask for the same work.
func TestSameWork(t *testing.T) {
	w := Work{Path: "/p", Size: 1 << 20, Mode: "randread", Depth: 64}
	fio, ours := fioArgs(w, time.Second), oursArgs(w, time.Second)
	for _, want := range []string{"--filename=/p", "--rw=randread", "--iodepth=64", "--size=1048576", "--bs=4096", "--runtime=1000ms", "--time_based", "--direct=1", "--fixedbufs", "--ioengine=io_uring"} {
		if !slices.Contains(fio, want) {
			t.Errorf("no %s in %v", want, fio)
		}
	}
	if got, want := strings.Join(ours, " "), "-rw randread -bs 4096 -iodepth 64 -json -force -size 1048576 -runtime 1s /p"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := fioArgs(w, 0); !slices.Contains(got, "--number_ios=1") || slices.Contains(got, "--time_based") {
		t.Errorf("one operation: %v", got)
	}
}

// TestSameWorkOnNode: for an NVMe node, both command lines ask for the same work.
func TestSameWorkOnNode(t *testing.T) {
	w := Work{Path: "/p", Size: 1 << 20, Mode: "randwrite", Depth: 64, Batch: 8, Rate: true, Node: true}
	fio, ours := fioArgs(w, time.Second), oursArgs(w, time.Second)
	for _, want := range []string{"--ioengine=io_uring_cmd", "--cmd_type=nvme", "--iodepth_batch=8"} {
		if !slices.Contains(fio, want) || slices.Contains(fio, "--ioengine=io_uring") {
			t.Errorf("no %s in %v", want, fio)
		}
	}
	if !slices.Contains(fio, "--gtod_reduce=1") || !slices.Contains(ours, "-latency=false") {
		t.Errorf("one of them measures latency: %v, %v", fio, ours)
	}
	if i := slices.Index(ours, "-iodepth_batch"); i < 0 || ours[i+1] != "8" {
		t.Errorf("no batch in %v", ours)
	}
}

// TestCostLessStart: the processor time of a run does not include that of starting the program.
func TestCostLessStart(t *testing.T) {
	short := &Program{"true", -1, func(Work, time.Duration) []string { return nil },
		func([]byte) (run, error) { return run{operations: 1, rate: 1}, nil }}
	c := NewContest("file", Work{Mode: "randwrite", Depth: 1}, [2]*Program{short, short}, 0)
	c.start = [2]time.Duration{time.Hour, 2 * time.Hour}
	for k, measure := range c.Programs {
		r, err := measure(t.Context())
		if own := r.cpu + c.start[k]; err != nil || own < 0 || own > time.Minute {
			t.Errorf("program %d: %v of processor time without its start, %v", k, r.cpu, err)
		}
	}
}

// TestCostPerOperation: a run that costs less than the start still has a cost above zero.
func TestCostPerOperation(t *testing.T) {
	if got := (run{operations: 1000, cpu: 2 * time.Millisecond}).each(); got != 2 {
		t.Errorf("%v µs each", got)
	}
	if got := (run{operations: 1000, cpu: -time.Second}).each(); got <= 0 {
		t.Errorf("less than starting costs: %v", got)
	}
}
