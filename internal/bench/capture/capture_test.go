package capture

import (
	"fmt"
	"testing"

	"github.com/unifiedd/unifiedd/internal/bench"
)

// rate is how many packets a second there are in contests: as many as all contestants take.
const rate = 200000

// finish keeps a report, and says how it came about.
func (b *bed) finish(r *bench.Report, name string) {
	b.Helper()
	r.Notes = append([]string{
		fmt.Sprintf("%d rounds, each contestant in turn having %v of packets over veth; sender and receiver on a CPU each; %s form.", b.rounds(), b.span(), b.form.Name),
		"What a packet costs is the time no processor was idle less that of the same packets into an XDP program that drops them, until all is on stable storage.",
		"Lost is what is not in the files.",
	}, r.Notes...)
	b.must(r.Finish(b.Output(), b.form, b.TempDir(), name))
}

// TestAgainstCaptures compares with the programs that others use.
func TestAgainstCaptures(t *testing.T) {
	b := newBed(t)
	r := bench.NewReport("Packets to disk", "unifiedd", "others")
	sizes := []int{64, 512, 1024, 1500}
	if b.form == bench.Short {
		sizes = sizes[2:3]
	}
	all := append([]contestant{ours("unifiedd", b.daemon, "", "", "")}, b.others()...)
	for _, size := range sizes {
		b.compete(r, work{size, rate}, all)
	}
	b.finish(r, "capture")
}
