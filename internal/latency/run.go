package latency

// Run records times one after the other into a Shared, where many of them are alike: as long as they fall into one bucket, only the run is
// written to. It belongs to the goroutine that records.
type Run struct {
	to     *Shared
	bucket int
	count  uint64
	sum    uint64
	least  uint64
	most   uint64
}

// Run begins one. End has what was recorded seen by others.
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

// flush counts the times of one bucket.
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
