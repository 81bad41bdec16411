package replica

import (
	"time"

	"github.com/unifiedd/unifiedd/flows/group"
)

// A leader that hands over takes nothing more from clients, and tells the other voter to lead once that one has every record.
// So the next leader has nothing to fetch before it begins, and nothing is cut off from the log of this one. Clients wait
// from the last acknowledgement here to the first one there.

// ceding is a hand-over to a voter.
type ceding struct {
	to     uint32 // 0: there is none
	since  time.Time
	asked  time.Time // when that member was last told to lead
	failed time.Time // when clients were let go on because it took too long; zero: they wait
}

// waits reports whether clients wait for another leader.
func (c *ceding) waits() bool { return c.to != 0 && c.failed.IsZero() }

// cede hands over to a voter, or goes on with that. The error says why it cannot.
func (d *Driver) cede(to uint32) error {
	c := &d.ceding
	if now := time.Now(); c.to != to || !c.waits() && now.Sub(c.failed) > transferTime {
		if err := d.mayTransfer(to); err != nil {
			return err
		}
		select {
		case <-d.complete: // of the last time
		default:
		}
		*c = ceding{to: to, since: now}
		d.hold(true)
	} else if !c.waits() {
		d.member.Transfer(to) // it may still succeed: clients do not wait for it again
	}
	return nil
}

// hold makes the leader take nothing from clients until the hand-over is over.
func (d *Driver) hold(on bool) {
	to := d.ceding.to
	if !on {
		to = 0
	}
	_ = d.config.Do(func() error { // fails if the flow has ended: Run ends, too
		d.config.Log.Pause(on)
		d.config.Replicator.await(to, d.complete)
		return nil
	})
}

// askToLead tells the other voter to lead. It may do so again and again: raft tells it once, and gives up after ten ticks.
func (d *Driver) askToLead(now time.Time) {
	if d.ceding.waits() {
		d.ceding.asked = now
		d.member.Transfer(d.ceding.to)
	}
}

// goOnCeding ends a hand-over that has succeeded or takes too long. It does not wait for ever until the other voter has all
// records: it may fetch the rest.
func (d *Driver) goOnCeding(now time.Time) {
	c := &d.ceding
	switch {
	case d.member.Phase() != group.Leading:
		*c = ceding{}
	case !c.waits():
	case now.Sub(c.since) > d.config.Suspect:
		c.failed = now
		d.hold(false)
	case now.Sub(c.since) > d.config.Suspect/4 && now.Sub(c.asked) > askTime:
		d.askToLead(now)
	}
}
