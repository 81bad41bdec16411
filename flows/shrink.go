package flows

import (
	"time"

	"github.com/unifiedd/unifiedd/flows/pipeline"
)

// makeRoom has flows give back what is more than their part of the region, now that there
// are more flows. What is on its way comes back in a moment; a flow keeps what it needs at
// least.
func (d *Daemon) makeRoom(kept []*Flow) {
	quota := d.share().Quota
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		over := false
		for _, f := range kept {
			over = f.shrink(quota) || over
		}
		if !over {
			return
		}
	}
}

// shrink has the flow give back what exceeds its quota, and reports whether there is still more.
func (f *Flow) shrink(q pipeline.Quota) (over bool) {
	r := f.running()
	if r == nil {
		return false
	}
	if s, ok := r.Flow.(pipeline.Shrinker); ok {
		_ = f.worker.Do(func() error { over = s.Shrink(q); return nil }) // without the thread there is no flow either
	}
	return over
}
