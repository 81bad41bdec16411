package flows

import (
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/umem"
)

// relayed is a log's end at which messages of relays arrive, over a region of its own.
func relayed(t *testing.T, before map[uint64]uint64) *rdmaStorage {
	region, err := umem.Open(umem.Config{Size: 8 << 20, Pages: umem.Ordinary})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { region.Close() })
	l := &rdmaStorage{}
	l.region, l.positions.log, l.receiver, l.spare = region, true, &stream.Receiver{}, &umem.FreeList{}
	for session, sequence := range before {
		l.once.before.Note(session, journal.Mark{Sequence: sequence})
	}
	return l
}

// come has messages arrive in the session of a relay, those of an origin, and takes them as the log does.
func (l *rdmaStorage) come(number uint16, first uint64, origins ...protocol.Origin) {
	l.count = 0
	for i, o := range origins {
		f := umem.Frame{Addr: uint64(i) * 4096, Len: protocol.HeaderLen}
		protocol.PutData(l.region.Bytes(f), &protocol.Data{Session: uint64(number) + 1, Sequence: first + uint64(i), Origin: o})
		l.region.Side(f).Queue = number
		l.buf[l.count] = f
		l.count++
	}
	l.leaveOut(0, time.Unix(1000, 0))
	l.number(l.buf[:l.count], time.Unix(1000, 0))
}

// TestOnce: what a relay sends again in another session of its own is recorded once, under the session and the sequence of its client.
func TestOnce(t *testing.T) {
	l := relayed(t, map[uint64]uint64{7: 10})
	l.come(0, 1, protocol.Origin{Session: 7, Sequence: 10}, protocol.Origin{Session: 7, Sequence: 11}, protocol.Origin{Session: 8, Sequence: 1}, protocol.Origin{Session: 7, Sequence: 12})
	if l.given != 3 || l.once.duplicates.Load() != 1 || l.skips[1] != 1 {
		t.Errorf("%d are recorded, %d were there, %d are to be acknowledged without a record", l.given, l.once.duplicates.Load(), l.skips[1])
	}
	d, why := protocol.ParseData(l.region.Bytes(l.buf[2]))
	if why != protocol.None || d.Session != 7 || d.Sequence != 12 || d.Position != 3 || d.Origin != (protocol.Origin{}) {
		t.Errorf("the record is %+v (%v)", d, why)
	}
	l.come(1, 1, protocol.Origin{Session: 7, Sequence: 11}, protocol.Origin{Session: 7, Sequence: 12}, protocol.Origin{Session: 7, Sequence: 13}) // the relay's next run
	if l.given != 4 || l.once.duplicates.Load() != 3 || l.spare.Len() != 3 || l.once.last(7).Sequence != 13 {
		t.Errorf("%d are recorded, %d were there, %d frames are free, the session is at %d", l.given, l.once.duplicates.Load(), l.spare.Len(), l.once.last(7))
	}
	l.acknowledgeSkipped(l.receiver)
	if l.skips[0] != 1 { // the first has nothing in front of it, the others have records that are not safe
		t.Errorf("%d messages without a record are acknowledged", l.skips[0])
	}
	l.positions.acknowledge(l.receiver, 4, time.Unix(1000, 0))
	if l.skips[0] != l.skips[1] {
		t.Errorf("%d of %d messages without a record are acknowledged", l.skips[0], l.skips[1])
	}
}

// TestOnceOwner: an origin belongs to the certificate whose relay brought it first; what another brings is refused, and what is behind it.
func TestOnceOwner(t *testing.T) {
	l := relayed(t, nil)
	l.come(0, 1, protocol.Origin{Session: 7, Sequence: 1})
	l.once.origins[7].owner = protocol.OwnerOf("another")
	l.come(0, 2, protocol.Origin{Session: 7, Sequence: 2}, protocol.Origin{Session: 8, Sequence: 1})
	if l.given != 1 || l.once.refused.Load() != 2 || l.once.last(7).Sequence != 1 || l.once.last(8).Sequence != 0 {
		t.Errorf("%d are recorded, %d refused, the sessions are at %d and %d", l.given, l.once.refused.Load(), l.once.last(7), l.once.last(8))
	}
}

// TestOnceFull: a full table forgets who was not there for long, else refuses who is new.
func TestOnceFull(t *testing.T) {
	l := relayed(t, nil)
	now := time.Unix(100000, 0)
	l.once.origins = map[uint64]*originState{}
	for id := range uint64(mostOrigins) {
		l.once.origins[id+1] = &originState{session: id + 1, used: now.UnixNano()}
	}
	if _, why := l.originOf(1<<40, 0, now); why != protocol.Busy {
		t.Errorf("one too many: %v", why)
	}
	l.once.origins[5].last = 50
	l.once.origins[5].used = now.Add(-2 * originTime).UnixNano()
	if _, why := l.originOf(1<<40, 0, now); why != protocol.None || l.once.origins[5] != nil || l.once.last(5).Sequence != 50 || len(l.once.origins) != mostOrigins {
		t.Errorf("in the place of an old one: %v", why)
	}
}
