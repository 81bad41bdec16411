package reload

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// usage has the resources that a process may leak.
type usage struct {
	Goroutines, Files, Heap, Resident, HugePages uint64
	Frames                                       int64 // free frames of the region
}

// usage returns the usage of an idle daemon.
func (r *rig) usage() (u usage) {
	r.t.Helper()
	s := r.status()
	u.Frames = s.Region.Owners["pool"]
	u.Goroutines, u.Heap = ^uint64(0), ^uint64(0)
	for range 20 { // take the minimum: some exist only for a moment
		if _, err := r.Page("/debug/pprof/heap?gc=1"); err != nil {
			r.t.Fatal(err)
		}
		page, err := r.Page("/metrics")
		testenv.Must(r.t, err)
		u.Goroutines = min(u.Goroutines, r.number(page, "go_goroutines"))
		u.Heap = min(u.Heap, r.number(page, "go_memstats_heap_alloc_bytes"))
		u.Resident = r.number(page, "process_resident_memory_bytes")
		time.Sleep(10 * time.Millisecond)
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.PID))
	testenv.Must(r.t, err)
	u.Files = uint64(len(files))
	smaps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", s.PID))
	testenv.Must(r.t, err)
	u.HugePages = r.number(string(smaps), "Shared_Hugetlb:") + r.number(string(smaps), "Private_Hugetlb:")
	return u
}

// number returns the number after a name at the start of a line.
func (r *rig) number(text, name string) uint64 {
	r.t.Helper()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `\s+(\S+)`).FindStringSubmatch(text)
	if m == nil {
		r.t.Fatalf("there is no %s in\n%s", name, text)
	}
	n, err := strconv.ParseFloat(m[1], 64)
	testenv.Must(r.t, err)
	return uint64(n)
}

// grown reports whether more is in use than before. The number of frames in use varies with the
// traffic in flight.
func (u usage) grown(before usage) bool {
	const heap, frames = 4 << 20, 600
	return u.Goroutines > before.Goroutines || u.Files > before.Files || u.HugePages != before.HugePages || u.Heap > before.Heap+heap || u.Frames < before.Frames-frames
}

// usageAgain returns the usage as soon as it is no more than before, or fails after a while.
// Resources of flows that just ended are freed a little later.
func (r *rig) usageAgain(before usage) (u usage) {
	r.t.Helper()
	for range 40 {
		if u = r.usage(); !u.grown(before) {
			return u
		}
	}
	r.t.Errorf("%+v are in use, and before %+v", u, before)
	return u
}
