package group

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/unifiedd/unifiedd/flows/group/election"
)

// reported handles a report on the leader.
func (m *Member) reported(one Message) error {
	config := m.Config()
	if one.Epoch != m.epoch || m.phase == Following || m.linked[one.From] || !slices.Contains(config.Holders(), one.From) {
		return nil
	}
	if err := one.Log.Table.Check(one.Log.End); err != nil {
		return fmt.Errorf("the report of member %d: %w", one.From, err)
	}
	if before, has := m.reports[one.From]; has && before.Serial > one.Serial {
		return nil
	}
	m.reports[one.From] = one
	m.evaluate()
	return nil
}

// evaluate goes on as far as the reports allow.
func (m *Member) evaluate() {
	if !m.node.Leads() || m.ended != m.epoch {
		return
	}
	switch {
	case m.phase == Leading:
		m.answer()
	case m.phase == Sealing:
		m.choose()
	}
}

// choose finds the log that has every committed record, once there are enough reports.
func (m *Member) choose() {
	if m.node.Changing() {
		return // who must report depends on it
	}
	config, own := m.Config(), m.config.Log()
	sure := func(id uint32) bool {
		if id == m.config.Self {
			return !own.Recovering
		}
		one, has := m.reports[id]
		return has && !one.Log.Recovering
	}
	known := func(id uint32) bool {
		_, has := m.reports[id]
		return has || id == m.config.Self
	}
	if m.config.witness() || !config.enough(sure) && !config.all(known) {
		return
	}
	best := Message{From: m.config.Self, Log: own}
	for _, id := range config.Holders() {
		if one, has := m.reports[id]; has && best.Log.End.Less(one.Log.End) {
			best = one
		}
	}
	if best.From == m.config.Self {
		m.phase, m.todo.Begin = Beginning, m.epoch
		return
	}
	after := Agree(own, best.Log)
	if after < own.Committed {
		m.err = fmt.Errorf("%w (up to position %d; the log of member %d, which ends at %v, agrees up to %d)", errDiverged, own.Committed, best.From, best.Log.End, after)
		return
	}
	m.phase, m.from = Fetching, best.From
	m.todo.Fetch = &Fetch{From: best.From, Epoch: m.epoch, After: after, Until: best.Log.End}
}

// Fetched says that all records of a Fetch are in the log.
func (m *Member) Fetched(epoch uint64) {
	if epoch == m.epoch && m.phase == Fetching {
		m.phase = Sealing
		m.evaluate()
	}
}

// FetchFailed says that a Fetch has failed. The leader asks that member again, and hands over to it: the
// records may not be kept any more, or this member's disk may hang, and that member needs nothing.
func (m *Member) FetchFailed(epoch uint64) {
	if epoch == m.epoch && m.phase == Fetching {
		m.phase = Sealing
		delete(m.reports, m.from)
		m.node.Transfer(m.from)
	}
}

// Began says that the record that begins the epoch is in the log. From now on links are accepted.
func (m *Member) Began(epoch uint64) {
	if epoch == m.epoch && m.phase == Beginning {
		m.phase, m.changed = Leading, m.config.Log().End.Position
		m.evaluate()
	}
}

// answer tells the members that reported what they must cut off.
func (m *Member) answer() {
	own := m.config.Log()
	for _, id := range slices.Sorted(maps.Keys(m.reports)) {
		one := m.reports[id]
		delete(m.reports, id)
		m.told[id] = toConnect
		m.send(Message{To: id, Kind: KindFollow, Epoch: m.epoch, Serial: one.Serial, After: Agree(own, one.Log), Until: own.End.Position})
	}
}

// toConnect is how many ticks a follower has to connect after it was answered. Another seal would end the
// link that it makes.
const toConnect = 8

// Link asks whether a follower may get the records after a position. The leader counts nothing of
// what the follower had on an earlier link.
func (m *Member) Link(member uint32, epoch, after uint64) error {
	config := m.Config()
	switch {
	case m.phase != Leading || epoch != m.epoch:
		return fmt.Errorf("member %d wants records of epoch %d, and this member is %v in epoch %d", member, epoch, m.phase, m.epoch)
	case !slices.Contains(config.Holders(), member) || member == m.config.Self:
		return fmt.Errorf("member %d is not a follower in this group", member)
	case after > m.config.Log().End.Position:
		return fmt.Errorf("member %d wants records after position %d, and the log ends at %v", member, after, m.config.Log().End)
	}
	m.linked[member] = true
	delete(m.reports, member)
	delete(m.told, member)
	return nil
}

// Unlink says that a follower's link has ended.
func (m *Member) Unlink(member uint32, epoch uint64) {
	if epoch == m.epoch && m.linked != nil {
		delete(m.linked, member)
	}
}

// Transfer hands over to another member. That one fetches the records that it lacks before it begins.
func (m *Member) Transfer(to uint32) { m.node.Transfer(to) }

// Change begins a change of the members. In a group with a witness, a member can become a voter once
// records wait for it, and it has all of them: see Await.
func (m *Member) Change(c election.Change, p Progress) error {
	config := m.Config()
	switch {
	case m.phase != Leading:
		return errNotLeader
	case m.joint || !config.Witnessed() && p.Held < m.changed:
		return election.ErrChanging
	}
	to := c.Apply(config.Members)
	after := Config{Members: to, Witnesses: config.Witnesses}
	holders, _ := after.voters(to.Voters)
	if len(holders) == 0 {
		return errors.New("no voter with records would be left")
	}
	if after.Witnessed() != config.Witnessed() {
		return errors.New("a group keeps its witness: replace it by another one")
	}
	for _, id := range holders {
		if config.Witnessed() && !slices.Contains(config.Members.Voters, id) && !p.Complete(id) {
			return fmt.Errorf("member %d does not have all records yet", id)
		}
	}
	return m.node.Begin(c)
}

var errNotLeader = errors.New("this member is not the group's leader")

// EndChange ends a change of the members. Before, the old and the new voters must have all records
// from before the change. In a group with a witness they have: records waited for them.
func (m *Member) EndChange(p Progress) error {
	config := m.Config()
	switch {
	case m.phase != Leading:
		return errNotLeader
	case !m.joint:
		return nil
	case !config.Witnessed() && p.Held < m.changed:
		return election.ErrChanging
	}
	return m.node.End()
}

// Keeps reports whether Keep may have something to do.
func (m *Member) Keeps() bool {
	config := m.Config()
	return m.phase == Leading && (m.joint || config.Witnessed())
}

// Near is how many records a learner may lack when records begin to wait for it.
const Near = 256

// Keep ends a change of the members when it can. In a group with a witness it also makes a voter that is
// away a learner, so that records do not wait for it, and makes it a voter again when it has all of
// them. The leader's caller calls it again and again.
func (m *Member) Keep(away func(member uint32) bool, p Progress) error {
	config := m.Config()
	holders, witness := config.voters(config.Members.Voters)
	switch {
	case m.phase != Leading || m.node.Changing():
		return nil
	case m.joint:
		return m.EndChange(p)
	case !witness:
		return nil
	}
	for _, id := range holders {
		if id != m.config.Self && away(id) {
			return m.Change(election.Change{Learners: []uint32{id}}, p)
		}
	}
	for _, id := range config.Members.Learners {
		switch waits := slices.Contains(m.awaited, id); {
		case len(holders) > 1 || config.Witness(id):
		case away(id) && waits:
			m.await(nil)
		case away(id):
		case waits && p.Complete(id):
			return m.Change(election.Change{Voters: []uint32{id}}, p)
		case len(m.awaited) == 0 && p.Safe[id]+Near >= p.Committed:
			m.await([]uint32{id})
		}
	}
	return nil
}

// Await makes records wait for learners of a group with a witness, or for none. A member that is to become
// a voter is awaited first. No change may be under way.
func (m *Member) Await(members []uint32) error {
	config := m.Config()
	switch {
	case m.phase != Leading:
		return errNotLeader
	case m.node.Changing():
		return election.ErrChanging // it may need who is awaited
	case config.Witnessed():
		m.await(members)
	}
	return nil
}

func (m *Member) await(members []uint32) {
	m.awaited = members
	config := m.Config()
	m.todo.Configure = &config
}

// reconfigured passes changed members on.
func (m *Member) reconfigured() {
	m.awaited = slices.DeleteFunc(m.awaited, func(id uint32) bool { return !slices.Contains(m.members.Learners, id) })
	config := m.Config()
	m.joint = len(config.Members.Outgoing) > 0
	m.todo.Configure = &config
	if m.phase == Leading {
		m.changed = m.config.Log().End.Position
	}
}

func equal(a, b election.Members) bool {
	return slices.Equal(a.Voters, b.Voters) && slices.Equal(a.Outgoing, b.Outgoing) && slices.Equal(a.Learners, b.Learners)
}
