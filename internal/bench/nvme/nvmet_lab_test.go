//go:build lab

package nvme

import (
	"fmt"
	"os"
	"testing"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestAgainstNvmet compares with nvmet-rdma in the form that UNIFIEDD_BENCH names. The guest is gone afterwards, so the report goes to standard
// output, where make lab-bench takes it from.
func TestAgainstNvmet(t *testing.T) {
	testenv.Long(t, "make lab-bench measures; that the target works TestOnVerbs of flows/target shows")
	form, err := bench.WantedForm()
	if err != nil {
		t.Fatal(err)
	}
	match, err := bench.WantedCases()
	if err != nil {
		t.Fatal(err)
	}
	device := labenv.SoftRoCE(t, "virtio0", address+"/24")
	labenv.Modules(t, "nvme_rdma")
	serveOurs(t, device)
	serveTheirs(t)
	disks := [2]string{connect(t, ourPort, ourNQN), connect(t, theirPort, theirNQN)}
	r := bench.NewReport("NVMe over Fabrics over Soft-RoCE in the lab guest", "unifiedd", "nvmet-rdma")
	r.Notes = []string{fmt.Sprintf("%d pairs of runs of %v, in turn, both targets connected and one fio stopped while the other runs; %s form.", form.Rounds, form.Span, form.Name),
		"The guest's processors and disk are emulated: only the ratios mean something."}
	for _, c := range contests() {
		if !match.MatchString(c.name()) {
			continue
		}
		c.compete(t, form, disks)
		r.Comparisons = append(r.Comparisons, c.compare()...)
	}
	if len(r.Comparisons) == 0 {
		t.Fatalf("%s=%s: there is no such case", bench.CasesVariable, match)
	}
	if err := r.Print(os.Stdout, "lab-nvmet"); err != nil {
		t.Error(err)
	}
}

// compete measures all pairs of a case.
func (c *contest) compete(t *testing.T, form bench.Form, disks [2]string) {
	t.Helper()
	var loads [2]*load
	for i, disk := range disks {
		loads[i] = begin(t, disk, c)
		defer loads[i].end()
	}
	measure := func(i int) func() error {
		return func() error {
			still, before := loads[1-i], loads[1-i].bytes()
			c.pairs[i] = append(c.pairs[i], loads[i].measure(form.Span, c.size))
			if after := still.bytes(); after != before {
				return fmt.Errorf("%s did %d bytes while fio was stopped there", still.disk, after-before)
			}
			return nil
		}
	}
	for round := range form.Rounds {
		if err := bench.Round(round, measure(0), measure(1)); err != nil {
			t.Fatal(err)
		}
	}
}
