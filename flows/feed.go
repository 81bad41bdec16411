package flows

import (
	"time"

	"github.com/unifiedd/unifiedd/umem"
)

// feed is the end of a flow of packets at RDMA peers, with stages in front. It belongs to the worker's thread, but for what starts and ends it.
type feed struct {
	outbox
	crowd
	stages
	region *umem.Region
}

// record sends the whole packets a source holds. What peers can not take now stays with
// the source.
func (f *feed) record(s *source, now time.Time) bool {
	whole := umem.Whole(s.buf[:s.held])
	f.apply(f.region, s.buf[s.ready:whole], uint64(now.UnixNano()))
	done := f.give(f.region, s.buf[:whole])
	s.ready, s.held = whole-done, copy(s.buf, s.buf[done:s.held])
	return f.took(done == whole)
}

// observe adds what is known of the peers, and what stages did.
func (f *feed) observe(s *FlowStatus) {
	f.outbox.observe(s)
	f.stages.observe(s)
	s.Stalls = f.stalls.Load()
}
