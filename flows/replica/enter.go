package replica

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/unifiedd/unifiedd/flows/group"
)

// A member without a state may be new, or it may have lost its files. One that has lost them has forgotten its votes, and
// which records it has confirmed: it could help to elect a leader that lacks acknowledged ones. So a member asks the others
// before it votes for the first time. It makes its state when all voters say that there was no election yet, and takes part when
// all of them have made theirs. So each voter has a state when the first leader is elected, and one that has none later has
// lost it.

// LostError means that a member has no state of its group, and that it had one.
type LostError struct {
	Told   uint32 // member that knows it
	Epoch  uint64 // of that member
	Needed bool   // without this member the others are too few to replace it
}

func (e *LostError) Error() string {
	return fmt.Sprintf("this member has no state of the group, in which it has voted (member %d is in epoch %d): its files are lost, and it must not take part", e.Told, e.Epoch)
}

// askEvery is the time between two questions to a member that has not given the awaited answer.
const askEvery = 50 * time.Millisecond

// namesAfter is how long a member waits before it logs whom it waits for, and then between two such lines.
const namesAfter, namesEvery = 2 * time.Second, time.Minute

// enter waits until this member may vote. It returns at once if it has voted before, or has joined the group.
func (d *Driver) enter(ctx context.Context) error {
	joins := d.config.Elections.Epoch() == 0
	if d.config.State != nil && (joins || !d.config.Elections.Fresh()) {
		return nil
	}
	d.waits.Store(true)
	defer d.waits.Store(false)
	answers, tell := map[uint32]group.Message{}, time.Now().Add(namesAfter)
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		missing, err := d.mayEnter(joins, answers)
		if err != nil || len(missing) == 0 {
			return err
		}
		for _, id := range missing {
			d.transport.Send(&group.Message{From: d.config.Self, To: id, Kind: group.KindAsk})
		}
		if now := time.Now(); now.After(tell) {
			tell = now.Add(namesEvery)
			d.log.Info("this member waits for the other members before it votes for the first time", "members", missing)
		}
		for again := false; !again; {
			select {
			case <-ctx.Done():
				return nil
			case m := <-d.messages:
				switch m.Kind {
				case group.KindAsk:
					d.answer(&m)
				case group.KindKnown:
					answers[m.From], again = m, m.Known != answers[m.From].Known
				}
			case f := <-d.calls:
				f()
			case <-tick.C:
				again = true
			}
		}
	}
}

// mayEnter returns which members must still answer. It makes the member's state once that is permitted.
func (d *Driver) mayEnter(joins bool, answers map[uint32]group.Message) (missing []uint32, err error) {
	if d.config.State == nil {
		for id, one := range answers {
			if joins && one.Voter || !joins && one.Known == group.KnowsEpochs {
				return nil, &LostError{id, one.Epoch, one.Needed}
			}
		}
	}
	if joins {
		return d.mayJoin(answers)
	}
	needs := group.KnowsNothing
	if d.config.State != nil {
		needs = group.KnowsGroup
	}
	for _, id := range d.config.Elections.Voters() {
		switch one := answers[id]; {
		case id == d.config.Self:
		case one.Known == group.KnowsEpochs:
			return nil, nil // this member had its state before
		case one.Known < needs:
			missing = append(missing, id)
		}
	}
	if len(missing) > 0 || d.config.State != nil {
		return missing, nil
	}
	if err := d.makeState(); err != nil {
		return nil, err
	}
	return d.mayEnter(joins, answers)
}

// mayJoin lets a member that joins make its state once most of the others say that it is no voter: a majority would know it.
func (d *Driver) mayJoin(answers map[uint32]group.Message) (missing []uint32, err error) {
	others := 0
	for id := range *d.peers.Load() {
		if id == d.config.Self {
			continue
		}
		others++
		if answers[id].Known == 0 {
			missing = append(missing, id)
		}
	}
	if slices.Sort(missing); 2*(others-len(missing)) <= others {
		return missing, nil
	}
	return nil, d.makeState()
}

// makeState makes the state of a member that had none.
func (d *Driver) makeState() (err error) {
	if d.config.State, err = d.config.Make(); err == nil {
		err = d.config.State.Write(d.config.Elections)
	}
	return err
}

// answer tells a member what this one knows of it.
func (d *Driver) answer(m *group.Message) {
	config := d.member.Config()
	one := group.Message{From: d.config.Self, To: m.From, Kind: group.KindKnown, Epoch: d.member.Epoch(), Known: group.KnowsEpochs,
		Voter: slices.Contains(config.Members.Voters, m.From) || slices.Contains(config.Members.Outgoing, m.From)}
	one.Needed = one.Voter && !config.Commits(func(id uint32) bool { return id != m.From })
	switch {
	case d.config.State == nil:
		one.Known = group.KnowsNothing
	case d.member.Fresh():
		one.Known = group.KnowsGroup
	}
	d.transport.Send(&one)
}
