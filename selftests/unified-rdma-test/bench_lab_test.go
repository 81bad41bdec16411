package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/bench/rdma"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/harness/programtest"
)

// How much data a run of the usual form moves: about what takes a second.
const (
	benchMessages = 10000
	benchBytes    = 24 << 20
)

// TestAgainstPerftest: unified-rdma-test is compared with the programs of perftest, in the form
// that UNIFIEDD_BENCH names. The report goes to standard output, where make lab-bench reads it,
// because the guest's files are lost at its end.
func TestAgainstPerftest(t *testing.T) {
	labenv.Guest(t)
	form, err := bench.WantedForm()
	if err != nil {
		t.Fatal(err)
	}
	if form == bench.Short {
		testenv.Long(t, "it compares with perftest and has no part that must be right; make lab runs it")
	}
	t.Setenv(programtest.Variable, "1")
	testenv.HugePages(t, 8<<20)
	p := newPlace(t)
	version := perftestVersion(t)
	at := rdma.Place{Card: p.card, Device: p.device, Address: p.server, GID: 1, MTU: p.mtu}
	r := bench.NewReport("RDMA over Soft-RoCE in the lab guest", "unified-rdma-test", version)
	r.Notes = []string{
		fmt.Sprintf("%d pairs of runs, in turn, fresh processes for each, both ends here, the server on CPU 0 and the client on CPU 1; path MTU %d; %s form.",
			form.Rounds, p.mtu, form.Name),
		"In tests of bandwidth unified-rdma-test hands over up to 16 requests at once where as many are ready, and perftest one; it sleeps while its queue is full, but for WRITE.",
		"The guest's processors are emulated: only the ratios mean something."}
	r.Comparisons = race(t, form, at)
	if err := r.Print(os.Stdout, "lab-rdma"); err != nil {
		t.Error(err)
	}
}

// perftestVersion returns the version that perftest prints.
func perftestVersion(t *testing.T) string {
	out, _ := exec.CommandContext(t.Context(), testenv.Tool(t, "ib_write_lat"), "--version").CombinedOutput() // its exit status has no meaning
	for line := range strings.Lines(string(out)) {
		if text := strings.TrimSpace(line); strings.HasPrefix(text, "Version") {
			return "perftest " + strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(text, "Version"), ":"))
		}
	}
	t.Fatalf("ib_write_lat does not say which version it is: %q", out)
	return ""
}

// race measures the cases one after the other. It prints each pair and each case when it is done.
func race(t *testing.T, form bench.Form, at rdma.Place) (all []bench.Comparison) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range works(t, form) {
		c := rdma.NewContest(w, at, rdma.Ours(exe), rdma.Perftest())
		for i := range form.Rounds {
			if err := c.Round(ctx, i); err != nil {
				t.Fatal(err)
			}
			fmt.Printf("%s, pair %d: %.4g against %.4g\n", c.Name, i+1, c.Samples[i][0], c.Samples[i][1])
		}
		result := c.Comparisons()[0]
		e := result.Estimate()
		fmt.Printf("%s: %.3f [%.3f, %.3f]\n", result.Case, e.Ratio, e.Low, e.High)
		all = append(all, result)
	}
	return all
}

// works returns the cases: all, the chosen ones, or in the short form one of each kind.
func works(t *testing.T, form bench.Form) (all []rdma.Work) {
	t.Helper()
	wanted, err := bench.WantedCases()
	if err != nil {
		t.Fatal(err)
	}
	share := func(n int) int { return int(time.Duration(n) * form.Span / bench.Usual.Span) }
	for _, w := range rdma.Works(share(benchMessages), share(benchBytes)) {
		short := w.Op == "write" && w.Size <= 4096
		if wanted.MatchString(w.Name()) && (form != bench.Short || short) {
			all = append(all, w)
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s=%s: there is no such case", bench.CasesVariable, wanted)
	}
	return all
}
