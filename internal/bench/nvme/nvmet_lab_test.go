//go:build lab

package nvme

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/bench/contest"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestAgainstNvmet compares with nvmet-rdma in the form that UNIFIEDD_BENCH names. The guest does not outlive
// the test, so the report goes to standard output, where make lab-bench reads it.
func TestAgainstNvmet(t *testing.T) {
	testenv.Long(t, "make lab-bench measures; that the target works TestOnVerbs of flows/nvmet shows")
	form, err := bench.WantedForm()
	if err != nil {
		t.Fatal(err)
	}
	match, err := bench.WantedCases()
	if err != nil {
		t.Fatal(err)
	}
	device := labenv.SoftRoCE(t, "virtio0", address+"/24")
	serveOurs(t, device)
	labenv.ServeNVMe(t, labenv.Disk, theirNQN, address, theirPort)
	var disks [2]string
	for i, to := range [2][2]string{{ourNQN, ourPort}, {theirNQN, theirPort}} {
		disks[i] = filepath.Base(labenv.ConnectNVMe(t, to[0], address, to[1], hostID))
	}
	r := bench.NewReport("NVMe over Fabrics over Soft-RoCE in the lab guest", "unifiedd", "nvmet-rdma")
	r.Notes = []string{fmt.Sprintf("%d pairs of runs of %v, in turn, both targets connected and one fio stopped while the other runs; %s form.", form.Rounds, form.Span, form.Name),
		"The guest's processors and disk are emulated: only the ratios mean something."}
	for _, w := range works() {
		if match.MatchString(w.name()) {
			r.Comparisons = append(r.Comparisons, compete(t, w, form, disks)...)
		}
	}
	if len(r.Comparisons) == 0 {
		t.Fatalf("%s=%s: there is no such case", bench.CasesVariable, match)
	}
	if err := r.Print(os.Stdout, "lab-nvmet"); err != nil {
		t.Error(err)
	}
}

// compete measures all pairs of a case.
func compete(t *testing.T, w work, form bench.Form, disks [2]string) []bench.Comparison {
	t.Helper()
	var loads [2]*load
	for i, disk := range disks {
		loads[i] = begin(t, disk, w)
		defer loads[i].end()
	}
	measure := func(i int) contest.Run[sample] {
		return func(context.Context) (sample, error) {
			still, before := loads[1-i], loads[1-i].bytes()
			s := loads[i].measure(form.Span, w.size)
			if after := still.bytes(); after != before {
				return s, fmt.Errorf("%s did %d bytes while fio was stopped there", still.disk, after-before)
			}
			return s, nil
		}
	}
	c := newContest(w, measure(0), measure(1))
	if err := c.Rounds(t.Context(), form.Rounds); err != nil {
		t.Fatal(err)
	}
	return c.Comparisons()
}
