package replica

import (
	"errors"
	"time"

	"github.com/unifiedd/unifiedd/flows/group"
	"github.com/unifiedd/unifiedd/flows/journal"
)

// A leader whose disk is full, hangs or has damaged records still sends heartbeats, so nobody deposes it. Others commit
// records without its disk for a while. Then its memory is full, and clients wait, though a majority is well. So such a
// leader hands over to a voter whose disk goes on: at the first error that the disk has no space, which comes before clients
// wait, and else when the disk has stood still for a while. Beside a witness, where records wait for all members with logs, a
// follower whose disk stands still counts as away.

// leastStandstill is longer than a flush takes on a busy disk.
const leastStandstill = time.Second

// standstill returns after how long without progress a disk counts as one that does not take records.
func (d *Driver) standstill() time.Duration { return max(2*d.config.Suspect, leastStandstill) }

// cedeAgain is the time between two hand-overs of one member because it cannot read its log, or because its disk has no
// space: with the next leader it may be the same.
const cedeAgain = time.Minute

// progress is how far a member's disk is.
type progress struct {
	at    uint64    // position
	since time.Time // when it came there, or when no other member was further
}

// disks is what a leader knows of the members' disks.
type disks struct {
	all   map[uint32]progress
	epoch uint64
	cause error     // why records cannot be read here; nil: they can
	ceded time.Time // when this member last handed over because of that, or because its disk has no space
	told  bool      // that this leader hands over
}

// watchDisks looks how far the disks of the members are, on a leader, and hands over if that of this member is worse than
// another one.
func (d *Driver) watchDisks(now time.Time, heard map[uint32]time.Time, p *group.Progress) {
	w := &d.disks
	if w.epoch != d.member.Epoch() {
		*w = disks{epoch: d.member.Epoch(), all: map[uint32]progress{}, ceded: w.ceded}
	}
	most := uint64(0)
	for _, at := range p.Disk {
		most = max(most, at)
	}
	for id, at := range p.Disk {
		if one := w.all[id]; one.since.IsZero() || one.at != at || at == most {
			w.all[id] = progress{at, now}
		}
	}
	cause := w.cause
	if cause == nil && d.config.Full != nil && (w.told || now.Sub(w.ceded) >= cedeAgain) {
		cause = d.config.Full()
	}
	cedes := cause != nil
	if cause == nil && d.standsStill(d.config.Self, now) {
		cause = errStandstill
	}
	if to := d.better(now, heard, p); cause != nil && to != 0 {
		if !w.told {
			w.told = true
			d.log.Warn("this leader hands over: another member's disk is better", "member", to, "err", cause)
		}
		if cedes {
			w.ceded = now
		}
		d.member.Transfer(to)
	}
}

// better returns the voter whose disk is furthest, and goes on; 0: there is none beside this member.
func (d *Driver) better(now time.Time, heard map[uint32]time.Time, p *group.Progress) (to uint32) {
	config := d.member.Config()
	for _, id := range config.Members.Voters {
		well := id != d.config.Self && !config.Witness(id) && now.Sub(heard[id]) < d.config.Suspect && !d.standsStill(id, now)
		if well && (to == 0 || p.Disk[id] > p.Disk[to]) {
			to = id
		}
	}
	return to
}

var errStandstill = errors.New("its disk takes no records: it is full, or it hangs")

// standsStill reports whether the disk of a member does not go on, though that of another one does.
func (d *Driver) standsStill(id uint32, now time.Time) bool {
	one, known := d.disks.all[id]
	return known && d.disks.epoch == d.member.Epoch() && now.Sub(one.since) > d.standstill()
}

// unreadable says that a leader cannot read records of its log, which a follower lacks.
func (d *Driver) unreadable(epoch uint64, err error) {
	gap, is := errors.AsType[*journal.Gap](err)
	if !is || gap.Removed() || d.member.Phase() != group.Leading || epoch != d.member.Epoch() || time.Since(d.disks.ceded) < cedeAgain {
		return
	}
	d.disks.cause = err
}
