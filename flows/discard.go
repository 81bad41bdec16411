package flows

import (
	"time"

	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/umem"
)

// discard is the end of a flow at which everything is counted and given back, so that the other end can be measured alone. It belongs to the
// worker's thread; the counters may be read from anywhere.
type discard struct {
	region  *umem.Region
	free    *umem.FreeList // where frames go
	packets counter.Counter
	bytes   counter.Counter
	times   frameTimes
}

// record discards the whole packets a source holds.
func (d *discard) record(s *source, now time.Time) bool {
	whole := umem.Whole(s.buf[:s.held])
	if whole > 0 {
		d.drop(s.buf[:whole], now)
	}
	s.held = copy(s.buf, s.buf[whole:s.held])
	return true
}

// drop counts whole packets and gives their frames back.
func (d *discard) drop(fs []umem.Frame, now time.Time) {
	packets, bytes, at := uint64(0), uint64(0), uint64(now.UnixNano())
	run := d.times.done.Run()
	begins := true
	for i := range fs {
		bytes += uint64(fs[i].Len)
		if begins {
			run.Record(since(at, arrived(d.region.Side(fs[i]), at)))
			packets++
		}
		begins = !fs[i].Continues()
	}
	run.End()
	d.free.Push(fs...)
	d.packets.Add(packets)
	d.bytes.Add(bytes)
}

// observe adds what was discarded.
func (d *discard) observe(s *FlowStatus) {
	s.Discarded = &DiscardedStatus{Packets: d.packets.Load(), Bytes: d.bytes.Load()}
	s.FrameTimes = d.times.status()
}

// There is no disk, and nobody to wait for.
func (*discard) trouble() error                   { return nil }
func (*discard) diagnose(err error) error         { return err }
func (*discard) pending() int                     { return 0 }
func (*discard) shut() error                      { return nil }
func (*discard) Deadline(now time.Time) time.Time { return now.Add(worker.MaxWait) }
