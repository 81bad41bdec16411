package nvme

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// TestRingsInControl: when the control area is full, the next queue uses the kernel's memory, and
// Granted says so. A closed queue's place is used again.
func TestRingsInControl(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{Depth: 4096 - MaxFlushes})
	var more []*Queue
	defer func() {
		for _, q := range more {
			r.check(q.Close())
		}
	}()
	inRegion := func() bool {
		q, err := Open(Config{Worker: r.hands, Name: "another", Depth: 4096 - MaxFlushes})
		testenv.Must(t, err)
		more = append(more, q)
		return q.Granted().RingsInRegion
	}
	if !r.queue.Granted().RingsInRegion {
		t.Fatal("the first queue's rings are not in the region")
	}
	for n := 1; inRegion(); n++ {
		if n > 4 {
			t.Fatalf("%d queues of depth 4080 do not fit into 2 MiB", n)
		}
	}
	r.check(more[0].Close())
	more = more[1:]
	if !inRegion() {
		t.Error("the place of a closed queue is not used again")
	}
}
