package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/unifiedd/unifiedd/flows/group"
	"github.com/unifiedd/unifiedd/flows/group/election"
)

// Standing is what a member is in its group.
type Standing struct {
	Number uint32
	Role   Role
	Away   bool   // not heard for Suspect; known on the leader only
	Safe   uint64 // position up to which it has all records safely; known on the leader only
	Path   int    // over which it gets records, from 1 on; 0: over none, or this member does not lead
	// Mode is its path mode; empty: there is no link to it, or one path. A leader knows that of its followers, and these
	// know that of the leader.
	Mode PathMode
}

// Role is what a member is in its group.
type Role string

const (
	Voter   Role = "voter"
	Witness Role = "witness"
	Learner Role = "learner" // gets records, and does not count
	Leaving Role = "leaving" // is a voter until the present change of the members ends
)

// look publishes the members and how far they are.
func (d *Driver) look(now time.Time) {
	config := d.member.Config()
	var heard map[uint32]time.Time
	var links map[uint32]linked
	var p group.Progress
	leads := d.member.Phase() == group.Leading
	if leads {
		var err error
		if heard, p, err = d.followers(); err != nil {
			return // Run ends
		}
	}
	if d.config.Links != nil {
		if err := d.config.Do(func() error { links = d.config.Links.linked(); return nil }); err != nil {
			return
		}
	}
	var all []Standing
	for _, id := range config.Members.All() {
		s := Standing{Number: id, Role: Voter, Safe: p.Safe[id], Path: links[id].path, Mode: links[id].mode}
		last := heard[id]
		switch {
		case config.Witness(id):
			s.Role, last = Witness, d.heardAt[id]
		case slices.Contains(config.Members.Voters, id):
		case slices.Contains(config.Members.Outgoing, id):
			s.Role = Leaving
		default:
			s.Role = Learner
		}
		if last.Before(d.leadsSince) { // it may just make its link
			last = d.leadsSince
		}
		s.Away = leads && id != d.config.Self && now.Sub(last) > d.config.Suspect
		all = append(all, s)
	}
	if !slices.Equal(all, d.standings) {
		d.compareModes(all)
		d.standings = all
	}
	d.show()
}

// compareModes warns of members whose path mode has become another one than that of this member. Nothing is lost then, but
// the followers of a leader share its links worse than active promises, or differently from what standby says.
func (d *Driver) compareModes(now []Standing) {
	here := modeOf(d.config.Spread)
	for _, s := range now {
		if s.Mode == "" || d.modes[s.Number] == s.Mode {
			continue
		}
		d.modes[s.Number] = s.Mode
		if s.Mode != here {
			d.log.Warn("a member of the group has another path_mode: give all members the same one", "member", s.Number, "name", (*d.peers.Load())[s.Number].Name, "path_mode", s.Mode, "here", here)
		}
	}
}

// askTime is the time between two steps of a change that an operator has asked for.
const askTime = 20 * time.Millisecond

// NotLeaderError means that only the leader does what was asked for.
type NotLeaderError struct{ Leader uint32 } // 0: not known

func (e *NotLeaderError) Error() string {
	return fmt.Sprintf("this member does not lead the group (member %d does)", e.Leader)
}

// transferTime is how long a leader tries to hand over to another voter.
const transferTime = 10 * time.Second

// Transfer makes another voter lead. It returns when that one leads, or fails. It does not go on after that.
func (d *Driver) Transfer(ctx context.Context, to uint32) error {
	ctx, cancel := context.WithTimeoutCause(ctx, transferTime, fmt.Errorf("member %d has not taken over within %v", to, transferTime))
	defer cancel()
	r := &request{d: d, message: group.Message{Request: group.RequestTransfer, Add: to}}
	defer r.end()
	before := uint64(0)
	over := func() (bool, error) {
		leader, epoch := d.member.Leader(), d.member.Epoch()
		switch {
		case before == 0:
			before = epoch
		case leader == to && epoch > before:
			return true, nil
		case leader != 0 && epoch > before:
			return true, fmt.Errorf("member %d leads now, and not member %d", leader, to)
		}
		if d.member.Phase() != group.Leading {
			r.asked = r.asked || epoch > before // the next leader is being elected
			return r.ask()
		}
		return false, d.handOver(to)
	}
	err := d.poll(ctx, over)
	if errors.Is(err, errClosed) { // the old leader had records that the new one lacks, so its flow begins again
		if done, e := over(); done { // Run has ended and no longer uses the member
			return e
		}
	}
	return err
}

// handing is a hand-over that this leader has begun.
type handing struct {
	epoch uint64
	to    uint32
}

// handOver tells another voter to lead. It may do so again and again: raft tells it once, and gives up after ten ticks. The
// error says why that member cannot lead. Later it may be away because it asks for votes.
func (d *Driver) handOver(to uint32) error {
	if now := (handing{d.member.Epoch(), to}); d.handing != now {
		if err := d.mayTransfer(to); err != nil {
			return err
		}
		d.handing = now
	}
	d.member.Transfer(to)
	return nil
}

// mayTransfer reports why this leader cannot hand over to a member.
func (d *Driver) mayTransfer(to uint32) error {
	config := d.member.Config()
	switch {
	case to == d.config.Self:
		return errors.New("this member leads already")
	case config.Witness(to) || !slices.Contains(config.Members.Voters, to):
		return fmt.Errorf("member %d is not a voter with records", to)
	case slices.ContainsFunc(d.standings, func(s Standing) bool { return s.Number == to && s.Away }):
		return fmt.Errorf("member %d is away", to)
	}
	return nil
}

// HandOver makes a leader hand over to the voter that has the most records, if there is one. It logs why it
// could not.
func (d *Driver) HandOver(ctx context.Context) {
	to, leads := uint32(0), false
	if d.ask(ctx, func() error {
		most := uint64(0)
		leads = d.member.Phase() == group.Leading
		for _, s := range d.standings {
			if s.Role == Voter && !s.Away && s.Number != d.config.Self && s.Safe >= most {
				to, most = s.Number, s.Safe
			}
		}
		return nil
	}) != nil || !leads {
		return
	}
	if to == 0 {
		d.log.Warn("this leader stops, and no other member can lead now")
		return
	}
	if err := d.Transfer(ctx, to); err != nil {
		d.log.Warn("this leader stops, and could not hand over", "member", to, "err", err)
		return
	}
	d.log.Info("this leader stops, and has handed over", "member", to)
}

// poll runs a step in Run until it is done or fails.
func (d *Driver) poll(ctx context.Context, step func() (done bool, err error)) error {
	tick := time.NewTicker(askTime)
	defer tick.Stop()
	for {
		done := false
		err := d.ask(ctx, func() (err error) { done, err = step(); return err })
		if err != nil || done {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it is not done yet, and goes on when it is asked for again (%w)", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// Change makes a member a voter, once it has all records, and makes another one leave; 0: none. It returns
// when that is done. It can be asked for again, also of another member, and goes on then.
func (d *Driver) Change(ctx context.Context, add, remove uint32) error {
	r := &request{d: d, message: group.Message{Request: group.RequestChange, Add: add, Remove: remove}}
	defer r.end()
	return d.poll(ctx, func() (bool, error) {
		if d.member.Phase() == group.Leading {
			r.asked = true
			return d.change(add, remove)
		}
		return r.ask()
	})
}

// change does the next step of a change, on the leader.
func (d *Driver) change(add, remove uint32) (done bool, err error) {
	config := d.member.Config()
	m := config.Members
	switch {
	case len(m.Outgoing) > 0:
		return false, nil // the last change ends first: see keep
	case (add == 0 || slices.Contains(m.Voters, add)) && (remove == 0 || !slices.Contains(m.All(), remove)):
		return true, nil
	case remove == d.config.Self:
		return false, errors.New("the leader cannot leave: make another member lead first")
	case !d.heardFew.IsZero() && time.Since(d.heardFew) > d.config.Suspect:
		return false, errFew
	}
	heard, p, err := d.followers()
	if err != nil {
		return false, err
	}
	to := election.Change{}
	if remove != 0 {
		to.Remove = []uint32{remove}
	}
	if add != 0 && !slices.Contains(m.Voters, add) {
		peer, known := (*d.peers.Load())[add]
		ready := peer.Witness || time.Since(heard[add]) < d.config.Suspect && d.caughtUp(add, &config, &p)
		switch {
		case !known:
			return false, fmt.Errorf("member %d is not in the configuration of the leader", add)
		case !peer.Witness && !slices.Contains(m.Learners, add):
			to = election.Change{Learners: []uint32{add}}
		case !ready:
			return false, nil
		default:
			to.Voters = []uint32{add}
		}
	}
	if after := to.Apply(m); len(after.Voters) < min(leastVoters, len(m.Voters)) {
		return false, fmt.Errorf("%d voters would be left: a group keeps %d", len(after.Voters), leastVoters)
	}
	if err := d.member.Change(to, p); err != nil && !errors.Is(err, election.ErrChanging) {
		return false, err
	}
	return false, nil
}

var errFew = errors.New("the leader hears too few of the members that vote, so nothing can be decided: start them with the files that they had")

// leastVoters is how many voters a group keeps: with fewer of them it would not survive a failure.
const leastVoters = 3

// caughtUp reports whether a learner may become a voter. Beside a witness, records wait for it first.
func (d *Driver) caughtUp(id uint32, config *group.Config, p *group.Progress) bool {
	if p.Safe[id]+group.Near < p.Committed {
		return false
	}
	if !config.Witnessed() {
		return true
	}
	if !slices.Contains(config.Awaited, id) {
		_ = d.member.Await([]uint32{id}) // fails while something else is under way: it is tried again
		return false
	}
	return p.Complete(id)
}

// Confirm waits until a majority of the members has said that this one still leads. So what is known here when it
// returns is what the group knew when it was called, or more. It fails if ctx ends, which it does if another
// member leads by now.
func (d *Driver) Confirm(ctx context.Context) error {
	sure := make(chan struct{})
	number := uint64(0)
	err := d.ask(ctx, func() error {
		if number = d.member.Confirm(); number == 0 {
			return &NotLeaderError{d.member.Leader()}
		}
		d.confirms[number] = sure
		return nil
	})
	if err != nil {
		return err
	}
	select {
	case <-sure:
		return nil
	case <-ctx.Done():
		go d.call(func() { delete(d.confirms, number) }) // Run may wait for a disk
		return context.Cause(ctx)
	case <-d.ctx.Done():
		return errClosed
	}
}

// confirmed tells those that asked before that this member led.
func (d *Driver) confirmed(upTo uint64) {
	for number, sure := range d.confirms {
		if number <= upTo {
			close(sure)
			delete(d.confirms, number)
		}
	}
}
