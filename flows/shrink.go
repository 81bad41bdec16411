package flows

import (
	"time"

	"github.com/unifiedd/unifiedd/flows/pipeline"
)

// enforceQuota makes flows give back what exceeds their quota, after flows were added. Frames in flight come
// back within a moment, so it tries again for 2 s. A flow keeps the least that it needs.
func (d *Daemon) enforceQuota(kept []*Flow) {
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		over := false
		for _, f := range kept {
			over = f.shrink() || over
		}
		if !over {
			return
		}
	}
}

// shrink makes the flow give back what exceeds its quota, and reports whether it still has more.
func (f *Flow) shrink() (over bool) {
	r := f.running()
	if r == nil {
		return false
	}
	if s, ok := r.Flow.(pipeline.Shrinker); ok {
		q := f.shared().Quota
		_ = f.worker.Do(func() error { over = s.Shrink(q); return nil }) // without its thread no flow runs
	}
	return over
}
