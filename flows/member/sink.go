package member

import (
	"encoding/binary"
	"time"

	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/sink/disk"
	"github.com/unifiedd/unifiedd/umem"
)

var _ pipeline.Sink = (*Sink)(nil)

// Sink is the transmit end of a member: the disk, and on the leader first the links to the followers.
type Sink struct {
	*disk.Writer
	source *Source
}

func (s *Sink) Reap(now time.Time) {
	s.Writer.Reap(now)
	s.source.links.Sort() // before the writer takes frames for headers
	s.source.round(s.Writer)
}

// Write implements pipeline.Sink. Followers get the leader's records before the disk.
func (s *Sink) Write(b *pipeline.Batch, now time.Time) bool {
	m := s.source
	if whole := umem.Whole(b.Held()); m.leads && b.Prepared < whole {
		for _, f := range b.Frames[b.Prepared:whole] {
			m.links.Offer(f)
			m.replicator.Appended(binary.BigEndian.Uint64(m.region.At(f.Addr+24, 8)))
		}
		b.Prepared = whole
	}
	before := b.Len
	all := s.Writer.Write(b, now)
	b.Prepared = max(0, b.Prepared-(before-b.Len))
	return all
}
