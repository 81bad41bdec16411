package storage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestAgainstFio compares in the form that UNIFIEDD_BENCH names and leaves table, JSON and plot in
// build/bench. The table shows a missed bar; the test does not fail, since on a busy machine the
// cause may be other load.
func TestAgainstFio(t *testing.T) {
	testenv.Root(t)
	form, err := bench.WantedForm()
	if err != nil {
		t.Fatal(err)
	}
	size := uint64(1 << 30)
	if form == bench.Short {
		size = 32 << 20
	}
	testenv.HugePages(t, 8<<20)
	cpu := runtime.NumCPU() - 1
	programs := [2]*Program{Ours(testenv.Build(t, "selftests/unified-nvme-test"), cpu), Fio(testenv.Tool(t, "fio"), cpu)}
	version, err := FioVersion(t.Context(), testenv.Tool(t, "fio"))
	if err != nil {
		t.Fatal(err)
	}
	pace := paceOf(form)
	r := bench.NewReport("block I/O", "unified-nvme-test", version)
	r.Notes = []string{
		fmt.Sprintf("%d pairs of runs of %v each, in turn, on CPU %d at the highest priority; %s form.", pace.Pairs*pace.Rounds, pace.Span, cpu, form.Name),
		"Processor time is the whole process's, less that of a run of one operation."}
	contests := prepare(t, size, programs, pace.Span)
	if form == bench.Short {
		contests = slices.DeleteFunc(contests, func(c *Contest) bool { return (c.Work.Depth == 1) != (c.Work.Mode == "randread") })
	}
	r.NoteLoad("before")
	compete(t, contests, pace)
	r.NoteLoad("at the end")
	for _, c := range contests {
		r.Comparisons = append(r.Comparisons, c.Comparisons()...)
	}
	if err := r.Finish(os.Stdout, form, t.TempDir(), "storage"); err != nil {
		t.Error(err)
	}
}

// prepare makes the targets, which hold the same bytes, and the cases.
func prepare(t *testing.T, size uint64, programs [2]*Program, span time.Duration) []*Contest {
	file := filepath.Join(testenv.DiskDir(t), "target")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	targets := []struct{ name, path string }{{"zram", testenv.Zram(t, size)}, {"file", file}}
	var all []*Contest
	for _, target := range targets {
		fill(t, target.path, size)
		for _, depth := range []int{1, 64} {
			for _, mode := range []string{"randread", "randwrite"} {
				all = append(all, NewContest(target.name, Work{Path: target.path, Size: size, Mode: mode, Depth: depth}, programs, span))
			}
		}
	}
	return all
}

// fill writes incompressible bytes, and waits until they are on the disk.
func fill(t *testing.T, path string, size uint64) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rnd, b := rand.NewChaCha8([32]byte{1}), make([]byte, 1<<20)
	for at := uint64(0); at < size; at += uint64(len(b)) {
		_, _ = rnd.Read(b) // it always fills all of it
		if _, err := f.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
}

// compete measures all cases once a round, so that changes of the machine affect all of them.
func compete(t *testing.T, contests []*Contest, pace Pace) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for _, c := range contests {
		if err := c.Calibrate(ctx, min(3, pace.Rounds)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range pace.Rounds {
		for _, c := range contests {
			if err := pace.Round(ctx, c, i); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("round %d of %d", i+1, pace.Rounds)
	}
}
