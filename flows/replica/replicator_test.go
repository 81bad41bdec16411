package replica

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/group"
	"github.com/unifiedd/unifiedd/flows/group/election"
	"github.com/unifiedd/unifiedd/flows/protocol"
)

// TestFenced: when a later epoch begins, a leader counts the records that nobody else has confirmed, once.
func TestFenced(t *testing.T) {
	var fenced atomic.Uint64
	log := group.Log{End: group.Place{Epoch: 1, Position: 10}}
	r := NewReplicator(&Links{config: Config{Level: protocol.Durable}}, 1, log, &fenced)
	r.StepDown() // a follower has nothing of its own
	if n := fenced.Load(); n != 0 {
		t.Errorf("a follower counts %d records", n)
	}
	r.Lead(2, 11, &group.Config{Members: election.Members{Voters: []uint32{1, 2, 3}}})
	r.Appended(30)
	r.progress(2, protocol.Have{Epoch: 2, Received: 25, Durable: 12})
	r.progress(3, protocol.Have{Epoch: 2, Received: 20})
	for range 2 {
		r.StepDown()
		if n := fenced.Load(); n != 5 {
			t.Errorf("%d records are fenced, and members 2 and 3 have confirmed 25 and 20 of 30", n)
		}
	}
	r.Lead(4, 31, &group.Config{Members: election.Members{Voters: []uint32{1, 2, 3}}})
	r.StepDown()
	if n := fenced.Load(); n != 6 {
		t.Errorf("%d records are fenced, with one that began an epoch", n)
	}
}

// TestShown: the description of the log that goes into the manifest is copied once in a while only, and with each change
// when the member stops.
func TestShown(t *testing.T) {
	var fenced atomic.Uint64
	log := group.Log{End: group.Place{Epoch: 1, Position: 10}}
	r := NewReplicator(&Links{config: Config{Level: protocol.Durable}, now: time.Unix(1, 0)}, 1, log, &fenced)
	shows := func(want uint64) {
		t.Helper()
		r.Round(10, 10)
		if got := r.Shown().Committed; got != want {
			t.Errorf("position %d is shown as committed, and %d is; want %d", got, r.Committed(), want)
		}
	}
	r.log.Committed = 7
	shows(0)
	r.Stop()
	shows(7)
	r.log.Committed = 9
	shows(9)
}

// TestShownIsOnDisk: readers of a member's log get no record that its own disk may lose, whoever has committed it.
func TestShownIsOnDisk(t *testing.T) {
	for level, want := range map[protocol.Durability]uint64{protocol.Received: 15, protocol.Written: 15, protocol.Durable: 12} {
		for _, leads := range []bool{false, true} {
			l := &Links{config: Config{Level: level}, now: time.Unix(1, 0)}
			r := NewReplicator(l, 1, group.Log{End: group.Place{Epoch: 1, Position: 10}}, new(atomic.Uint64))
			r.Stop() // each change is shown
			if leads {
				r.Lead(2, 11, &group.Config{Members: election.Members{Voters: []uint32{1, 2, 3}}})
			}
			r.Appended(20)
			r.Round(10, 10)
			if leads {
				for _, other := range []uint32{2, 3} {
					r.progress(other, protocol.Have{Epoch: 2, Received: 20, Written: 20, Durable: 20})
				}
			} else {
				l.committed.Set(20)
			}
			r.Round(15, 12)
			if got := r.Shown().Committed; r.Committed() != 20 || got != want {
				t.Errorf("%v, leads %v: 20 records are committed (%d), 15 written and 12 durable: readers get %d, and not %d", level, leads, r.Committed(), got, want)
			}
		}
	}
}
