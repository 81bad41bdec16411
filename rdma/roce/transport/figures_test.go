package transport

import (
	"fmt"
	"slices"
	"strings"

	"github.com/unifiedd/unifiedd/rdma"
)

// figures count what the models did and how their requests ended.
type figures struct {
	models, restarts, requests, bytes uint64
	faults                            [kinds]uint64
	statuses                          [32]uint64 // of requests
	counts                            [Counters]uint64
	malformed                         uint64
}

// known holds the figures of all models since the test began.
var known figures

func (f *figures) add(m *model) {
	f.models++
	for kind, n := range m.link.did {
		f.faults[kind] += n
	}
	for _, s := range m.sides {
		for _, p := range s.requests[:s.posted] {
			f.requests++
			f.bytes += uint64(p.length)
		}
		for _, c := range s.sends() {
			f.statuses[c.Status&31]++
		}
		for c := range Counters {
			f.counts[c] += s.Count(c)
		}
		for _, n := range s.malform {
			f.malformed += uint64(n)
		}
	}
}

func (f *figures) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d models, %d peers restarted, %d requests of %d bytes;", f.models, f.restarts, f.requests, f.bytes)
	for kind, n := range f.faults {
		fmt.Fprintf(&b, " %s %d,", faultNames[kind], n)
	}
	fmt.Fprintf(&b, " %d packets malformed; requests ended:", f.malformed)
	for status, n := range f.statuses {
		if n > 0 {
			fmt.Fprintf(&b, " %v %d,", rdma.Status(status), n)
		}
	}
	b.WriteString(" counted:")
	for c, n := range f.counts {
		if n > 0 {
			fmt.Fprintf(&b, " %v %d,", Counter(c), n)
		}
	}
	return strings.TrimSuffix(b.String(), ",")
}

// sends returns the completions of planned requests.
func (s *side) sends() []rdma.WorkCompletion {
	return slices.DeleteFunc(slices.Clone(s.done), func(c rdma.WorkCompletion) bool {
		return c.ID > 100 || c.Status == rdma.Success && c.Kind >= rdma.Received
	})
}
