package latency

// Run records times into a Shared one after the other, where adjacent times are often alike. While they fall
// into one bucket, it writes only to the Run. It belongs to the goroutine that records.
type Run struct {
	to     *Shared
	bucket int
	count  uint64
	sum    uint64
	least  uint64
	most   uint64
}

// Run begins a run. Other goroutines see its times after End.
func (s *Shared) Run() Run { return Run{to: s, bucket: -1, least: ^uint64(0)} }

// Record counts one time in nanoseconds. It neither allocates nor locks.
func (r *Run) Record(ns uint64) {
	if b := bucketOf(ns); b != r.bucket {
		r.flush()
		r.bucket = b
	}
	r.count++
	r.sum += ns
	r.least, r.most = min(r.least, ns), max(r.most, ns)
}

// flush adds the collected times of one bucket to the Shared.
func (r *Run) flush() {
	if r.count > 0 {
		r.to.counts[r.bucket].Add(r.count)
		r.count = 0
	}
}

// End ends the run.
func (r *Run) End() {
	if r.flush(); r.bucket < 0 {
		return
	}
	r.to.sum.Add(r.sum)
	r.to.bounds(r.least, r.most)
}
