package replica

import (
	"errors"
	"time"

	"github.com/unifiedd/unifiedd/flows/group"
)

// missed is how many heartbeats must be missing after the connection for elections has ended: a leader that
// only connects again, such as with other certificates, goes on.
const missed = 3

// unlinked is for how many times Suspect a leader counts as alive that sends no records: it seals the
// epoch, or the link is being made again.
const unlinked = 4

// fromLeader reports whether a message shows that the leader lives.
func (d *Driver) fromLeader(m *group.Message) bool {
	if m.From != d.member.Leader() {
		return false
	}
	return m.Kind != group.KindElection && m.Epoch == d.member.Epoch() || m.Kind == group.KindElection && m.Election.GetTerm() == d.member.Epoch()
}

// detect asks for an election when the leader is silent.
func (d *Driver) detect(now time.Time) {
	if d.member.Phase() != group.Following {
		return
	}
	seen := d.leaderSeen
	if d.config.Links != nil {
		seen = d.heardRecords(now)
	}
	silent, again := now.Sub(seen), min(d.config.Suspect/4, 2*askAgain)
	dead := d.dead(d.member.Leader(), seen, now)
	if dead {
		again = min(again, askAgain)
	}
	// A member that asks for an election has no leader. It asks again until there is one, or another epoch: the others may
	// not have noticed when it asked first.
	asks := d.member.Leader() == 0 && !d.doubted.IsZero()
	if silent < d.config.Suspect && !dead && !asks {
		d.member.Heard()
		d.silence = max(d.silence, silent)
		d.trust()
		return
	}
	if d.doubted.IsZero() {
		d.doubted = now
		d.distrust()
	}
	if now.Before(d.abstain) || now.Sub(d.asked) < again || now.Sub(d.doubted) < d.turn() {
		return
	}
	if now.Sub(d.asked) > d.config.Suspect {
		d.log.Info("the group's leader is silent", "leader", d.member.Leader(), "epoch", d.member.Epoch(), "connection lost", dead, "link", d.config.Links != nil && d.config.Links.Linked())
	}
	d.asked = now
	if d.config.Links != nil {
		d.elections++
	}
	_ = d.member.Suspect() // fails on a leader only
}

// heardRecords returns when this member last heard the leader over its link. The transport counts for a
// while when there is no link: the leader is about to send records.
func (d *Driver) heardRecords(now time.Time) time.Time {
	seen := time.Unix(0, d.config.Links.Heard())
	if seen.After(d.linked) {
		d.linked = seen
	}
	if d.leaderSeen.After(seen) && !d.config.Links.Linked() && now.Sub(d.linked) < unlinked*d.config.Suspect {
		return d.leaderSeen
	}
	return seen
}

// silent is what a member knows of a link over which nothing comes.
type silent struct {
	heard int64     // what Links.Heard said last
	since time.Time // since when it has not changed, while the leader was heard over the transport and this process ran
	ended uint64    // links that were ended for it
}

var errSilent = errors.New("nothing comes over it, and the leader goes on")

// endSilent ends the link to the leader if nothing comes over it for longer than an election takes, and the leader goes on:
// the others hear it, and grant this member no pre-votes. The leader asks no member for a report that has a link, so
// both would wait for ever. With several paths, a silent one is left earlier.
func (d *Driver) endSilent(now time.Time) {
	l, s, limit := d.config.Links, &d.silent, unlinked*d.config.Suspect
	if l == nil || len(l.paths) > 1 || d.member.Phase() != group.Following {
		return
	}
	if heard := l.Heard(); heard != s.heard || !l.Linked() || now.Sub(d.leaderSeen) > d.config.Suspect {
		s.heard, s.since = heard, now
		return
	}
	if now.Sub(s.since) <= limit {
		return
	}
	s.since = now
	ended := false
	err := d.config.Do(func() (err error) {
		if l.incoming != nil && l.now.Sub(time.Unix(0, l.Heard())) > limit { // else the worker was away, and has not looked
			ended, err = true, l.End(l.incoming, errSilent)
		}
		return err
	})
	if ended && err == nil {
		s.ended++
		d.log.Warn("nothing comes over the link to the group's leader, and the leader goes on: there will be another link", "epoch", d.member.Epoch(), "heard before", now.Sub(time.Unix(0, s.heard)))
	}
}

// dead reports whether the process of a member seems to have died: its connection has ended, and it was not
// heard since.
func (d *Driver) dead(member uint32, heard, now time.Time) bool {
	at, lost := d.lost[member]
	return lost && heard.Before(at) && now.Sub(at) > missed*d.config.Heartbeat
}

// repeat makes a leader repeat what may be lost. A leader that hears too few followers lets the others
// elect another one: its network may be broken.
func (d *Driver) repeat(now time.Time) {
	if d.member.Phase() != group.Leading {
		d.heardFew = time.Time{}
		d.member.Tick()
		return
	}
	config, since := d.member.Config(), now.Add(-d.config.Suspect)
	heard, p, err := d.followers()
	if err != nil {
		return // Run ends
	}
	d.watchDisks(now, heard, &p)
	enough := config.Commits(func(id uint32) bool {
		switch {
		case id == d.config.Self:
			return true
		case config.Witness(id):
			return d.heardAt[id].After(since)
		}
		return heard[id].After(since)
	})
	d.member.Followed(enough)
	switch {
	case enough:
		d.heardFew = time.Time{}
	case d.heardFew.IsZero():
		d.heardFew = now
	case now.Sub(d.heardFew) > 2*unlinked*d.config.Suspect: // nobody else leads: go on
		d.heardFew = time.Time{}
	case now.Sub(d.heardFew) > unlinked*d.config.Suspect:
		d.abstain = now.Add(unlinked * d.config.Suspect)
		return
	}
	d.member.Tick()
}

// turn returns how long this member leaves the election to others. Members that ask for one at the same time vote for
// themselves, and the next attempt comes only after the whole of Suspect. So the one with the least number asks first,
// and each other one a little later, unless the ones before it are not connected.
func (d *Driver) turn() (wait time.Duration) {
	config := d.member.Config()
	last := config.Witness(d.config.Self) // it has no records to lead with
	for _, id := range config.Members.Voters {
		_, lost := d.lost[id]
		if before := id < d.config.Self || last; before && id != d.config.Self && id != d.member.Leader() && !lost && !config.Witness(id) {
			wait += turnTime
		}
	}
	return wait
}

// turnTime is longer than members notice the silence of a leader one after the other, and than the first one's question
// takes.
const turnTime = 2 * askAgain

// distrust says that the leader is suspected: clients that come now wait for another one.
func (d *Driver) distrust() {
	if d.config.Led != nil && d.member.Leader() != 0 {
		d.config.Led(0, d.member.Epoch())
	}
}

// trust says that a leader that was suspected goes on.
func (d *Driver) trust() {
	if d.doubted.IsZero() {
		return
	}
	d.doubted = time.Time{}
	if d.config.Led != nil && d.member.Leader() != 0 {
		d.config.Led(d.member.Leader(), d.member.Epoch())
	}
}
