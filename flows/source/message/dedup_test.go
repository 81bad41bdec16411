package message

import (
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// newLog returns a source that receives messages of relays, with its own region.
func newLog(t *testing.T, before map[uint64]uint64) *Source {
	region, err := umem.Open(umem.Config{Size: 8 << 20, Pages: umem.Ordinary})
	testenv.Must(t, err)
	t.Cleanup(func() { region.Close() })
	l := &Source{region: region, receiver: &stream.Receiver{}, dedup: &dedup{}}
	l.batch.Frames = make([]umem.Frame, pipeline.Burst)
	l.acks.region, l.acks.numbered = region, true
	for session, sequence := range before {
		l.dedup.earlier.Note(session, journal.Mark{Sequence: sequence})
	}
	return l
}

// receive delivers messages of origins in the session of a relay.
func (l *Source) receive(number uint16, first uint64, origins ...protocol.Origin) {
	l.batch.Len = 0
	for i, o := range origins {
		f := umem.Frame{Addr: uint64(i) * 4096, Len: protocol.HeaderLen}
		protocol.PutData(l.region.Bytes(f), &protocol.Data{Session: uint64(number) + 1, Sequence: first + uint64(i), Origin: o})
		l.region.Side(f).Queue = number
		l.batch.Frames[l.batch.Len] = f
		l.batch.Len++
	}
	l.removeDuplicates(0, time.Unix(1000, 0))
	l.acks.number(l.batch.Held(), time.Unix(1000, 0))
}

// TestOnce: a log records a message once, under the client's session and sequence, when a relay
// resends it in another session.
func TestOnce(t *testing.T) {
	l := newLog(t, map[uint64]uint64{7: 10})
	l.receive(0, 1, protocol.Origin{Session: 7, Sequence: 10}, protocol.Origin{Session: 7, Sequence: 11}, protocol.Origin{Session: 8, Sequence: 1}, protocol.Origin{Session: 7, Sequence: 12})
	if l.acks.received != 3 || l.dedup.duplicates.Load() != 1 || l.acks.skips != 1 {
		t.Errorf("%d are recorded, %d were there, %d are to be acknowledged without a record", l.acks.received, l.dedup.duplicates.Load(), l.acks.skips)
	}
	d, why := protocol.ParseData(l.region.Bytes(l.batch.Frames[2]))
	if why != protocol.None || d.Session != 7 || d.Sequence != 12 || d.Position != 3 || d.Origin != (protocol.Origin{}) {
		t.Errorf("the record is %+v (%v)", d, why)
	}
	l.receive(1, 1, protocol.Origin{Session: 7, Sequence: 11}, protocol.Origin{Session: 7, Sequence: 12}, protocol.Origin{Session: 7, Sequence: 13}) // the relay has restarted
	if l.acks.received != 4 || l.dedup.duplicates.Load() != 3 || l.free.Len() != 3 || l.dedup.last(7).Sequence != 13 {
		t.Errorf("%d are recorded, %d were there, %d frames are free, the session is at %d", l.acks.received, l.dedup.duplicates.Load(), l.free.Len(), l.dedup.last(7))
	}
	l.acks.acknowledgeSkipped(l.receiver)
	if l.acks.skipsDone != 1 { // nothing precedes the first one; the records before the others are not safe yet
		t.Errorf("%d messages without a record are acknowledged", l.acks.skipsDone)
	}
	l.acks.acknowledge(l.receiver, 4, time.Unix(1000, 0))
	if l.acks.skipsDone != l.acks.skips {
		t.Errorf("%d of %d messages without a record are acknowledged", l.acks.skipsDone, l.acks.skips)
	}
}

// TestOnceOwner: an origin belongs to the certificate whose relay first delivered its messages; the
// log refuses a message from another certificate, and the messages after it.
func TestOnceOwner(t *testing.T) {
	l := newLog(t, nil)
	l.receive(0, 1, protocol.Origin{Session: 7, Sequence: 1})
	l.dedup.origins[7].owner = protocol.OwnerOf("another")
	l.receive(0, 2, protocol.Origin{Session: 7, Sequence: 2}, protocol.Origin{Session: 8, Sequence: 1})
	if l.acks.received != 1 || l.dedup.refused.Load() != 2 || l.dedup.last(7).Sequence != 1 || l.dedup.last(8).Sequence != 0 {
		t.Errorf("%d are recorded, %d refused, the sessions are at %d and %d", l.acks.received, l.dedup.refused.Load(), l.dedup.last(7), l.dedup.last(8))
	}
}

// TestOnceFull: a full table removes origins that were not used for long; if there are none, it
// refuses new origins.
func TestOnceFull(t *testing.T) {
	l := newLog(t, nil)
	now := time.Unix(100000, 0)
	l.dedup.origins = map[uint64]*origin{}
	for id := range uint64(maxOrigins) {
		l.dedup.origins[id+1] = &origin{session: id + 1, used: now.UnixNano()}
	}
	if _, why := l.originOf(1<<40, 0, now); why != protocol.Busy {
		t.Errorf("one too many: %v", why)
	}
	l.dedup.origins[5].last = 50
	l.dedup.origins[5].used = now.Add(-2 * originTime).UnixNano()
	if _, why := l.originOf(1<<40, 0, now); why != protocol.None || l.dedup.origins[5] != nil || l.dedup.last(5).Sequence != 50 || len(l.dedup.origins) != maxOrigins {
		t.Errorf("in the place of an old one: %v", why)
	}
}
