package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/bench/storage"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/harness/programtest"
)

// batch is how many operations both programs submit at once.
const batch = 4

// diskBytes is the part of the disk in use.
const diskBytes = 1 << 30

// TestAgainstFioOnDisk: compares with fio on the guest's NVMe disk, as block device and as node, in
// the form that UNIFIEDD_BENCH names. The guest does not outlive the test, so the report goes to
// standard output, where make lab-bench reads it.
func TestAgainstFioOnDisk(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, "make lab-bench measures; that the comparison works TestAgainstFio shows on this machine")
	form, err := bench.WantedForm()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(programtest.Variable, "1")
	testenv.HugePages(t, 8<<20)
	const cpu = 1
	programs := [2]*storage.Program{storage.Ours("/proc/self/exe", cpu), storage.Fio(testenv.Tool(t, "fio"), cpu)}
	version, err := storage.FioVersion(t.Context(), testenv.Tool(t, "fio"))
	if err != nil {
		t.Fatal(err)
	}
	pace := storage.Pace{Rounds: form.Rounds, Pairs: 2, Span: form.Span}
	if form == bench.Short {
		pace.Pairs = 1
	}
	r := bench.NewReport("block I/O on an NVMe disk of the lab guest", "unified-nvme-test", version)
	r.Notes = []string{fmt.Sprintf("%d pairs of runs of %v each, in turn, on CPU %d; operations are handed over %d at a time by both; %s form.",
		pace.Pairs*pace.Rounds, pace.Span, cpu, batch, form.Name),
		"The guest's processors and disk are emulated: only the ratios mean something."}
	r.Comparisons = compete(t, contests(t, form, programs, pace.Span), pace)
	if err := r.Print(os.Stdout, "lab-storage"); err != nil {
		t.Error(err)
	}
}

// contests returns the cases: all of them, the selected ones, or in the short form one for each
// way.
func contests(t *testing.T, form bench.Form, programs [2]*storage.Program, span time.Duration) []*storage.Contest {
	var all []*storage.Contest
	match, err := bench.WantedCases()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range disks {
		for _, depth := range []int{1, 64} {
			for _, mode := range []string{"randread", "randwrite"} {
				w := storage.Work{Path: d.path, Size: diskBytes, Mode: mode, Depth: depth, Batch: min(batch, depth), Rate: true, Node: d.path == labenv.DiskPassthrough}
				c := storage.NewContest(d.name, w, programs, span)
				if match.MatchString(c.Name) {
					all = append(all, c)
				}
			}
		}
	}
	if form == bench.Short {
		all = slices.DeleteFunc(all, func(c *storage.Contest) bool {
			return c.Work.Node != (c.Work.Depth == 64) || c.Work.Node != (c.Work.Mode == "randwrite")
		})
	}
	if len(all) == 0 {
		t.Fatalf("%s=%s: there is no such case", bench.CasesVariable, match)
	}
	return all
}

// compete measures all cases once in each round.
func compete(t *testing.T, contests []*storage.Contest, pace storage.Pace) []bench.Comparison {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for i := range pace.Rounds {
		for _, c := range contests {
			if err := pace.Round(ctx, c, i); err != nil {
				t.Fatal(err)
			}
		}
	}
	var all []bench.Comparison
	for _, c := range contests {
		all = append(all, c.Comparisons()[0])
	}
	return all
}
