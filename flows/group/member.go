package group

import (
	"errors"
	"fmt"
	"log/slog"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/unifiedd/unifiedd/flows/group/election"
)

// Phase is what a member does in its epoch.
type Phase uint8

const (
	Following Phase = iota // it is not the leader
	Sealing                // the leader waits for reports
	Fetching               // the leader fetches records that it lacks
	Beginning              // the leader appends the record that begins its epoch
	Leading                // the leader appends records; it takes them from clients once Commits.Open is true
)

var phaseNames = [...]string{"following", "sealing", "fetching", "beginning", "leading"}

func (p Phase) String() string { return phaseNames[p] }

// MemberConfig configures a Member.
type MemberConfig struct {
	Self      uint32   // number in the group: 1 or more
	Witnesses []uint32 // numbers of the witnesses
	State     election.State
	// Log describes the member's log as it is now, without records that may still arrive over a link that
	// is not ended. A witness has the zero value.
	Log func() Log
	// Serial is a number for the first report. No other run of the member may use it or the 2^32 numbers
	// after it.
	Serial uint64
	Logger *slog.Logger
}

// Member is one member's part in the group.
type Member struct {
	config  MemberConfig
	node    *election.Node
	epoch   uint64 // the epoch that is entered
	ended   uint64 // links of all earlier epochs are ended
	phase   Phase
	heard   bool   // the leader was heard, and no election was asked for since; on the leader: it hears enough followers
	serial  uint64 // of the last report
	asks    uint64 // calls of Confirm
	asked   uint32 // the leader that waits for a report; 0: none
	passed  map[uint32]int
	reports map[uint32]Message // on the leader: not answered yet
	linked  map[uint32]bool    // on the leader: members that get records
	told    map[uint32]int     // on the leader: for how many ticks members that were answered may connect
	from    uint32             // while fetching
	members election.Members   // as last passed on
	changed uint64             // on the leader: the last position when the voters changed
	joint   bool
	awaited []uint32 // on the leader: see Config
	todo    Ready
	err     error
}

// Ready is what the caller must do, in this order, before it calls Advance.
type Ready struct {
	// Save: make Member.State durable.
	Save bool
	// EndLinks: end all links, and drop what arrived over them and is not in the log.
	EndLinks bool
	// Configure: the members have changed. The leader passes this to Commits.Configure before it goes on.
	Configure *Config
	// Messages must be sent.
	Messages []Message
	// Follow: remove the records after a position, durably, and get the following ones from the leader.
	Follow *Follow
	// Fetch: remove the records after a position, durably, and get the following ones from another member.
	// Then call Fetched or FetchFailed.
	Fetch *Fetch
	// Begin: append the record that begins this epoch, and call Began. 0: no.
	Begin uint64
	// Confirmed: this member led when Confirm returned this number, and smaller ones. 0: nothing new.
	Confirmed uint64
}

// Follow says that a follower gets records of a leader.
type Follow struct {
	Leader       uint32
	Epoch, After uint64
	Until        uint64 // with all records up to here the member is not recovering any more
}

// Fetch says that a leader gets records of another member.
type Fetch struct {
	From         uint32
	Epoch, After uint64
	Until        Place
}

// NewMember makes a member that follows.
func NewMember(c MemberConfig) (*Member, error) {
	node, err := election.New(c.Self, c.State, c.Logger)
	if err != nil {
		return nil, err
	}
	m := &Member{config: c, node: node, epoch: node.Epoch(), ended: node.Epoch(), serial: c.Serial, passed: map[uint32]int{}}
	m.members = node.Members()
	m.joint = len(m.members.Outgoing) > 0
	return m, nil
}

// State returns the state that a Ready with Save asks to make durable.
func (m *Member) State() election.State { return m.node.State() }

// Epoch returns the current epoch.
func (m *Member) Epoch() uint64 { return m.epoch }

// Fresh reports whether no election has taken place yet.
func (m *Member) Fresh() bool { return m.node.Fresh() }

// Phase returns what the member does.
func (m *Member) Phase() Phase { return m.phase }

// Leader returns the leader of the current epoch; 0: not known.
func (m *Member) Leader() uint32 { return m.node.Leader() }

// SetWitnesses changes which members are witnesses: those of the group must stay.
func (m *Member) SetWitnesses(numbers []uint32) { m.config.Witnesses = numbers }

// Config returns the members that count.
func (m *Member) Config() Config { return Config{m.node.Members(), m.config.Witnesses, m.awaited} }

// Err returns why the member has stopped, or nil. A stopped member must not do anything any more.
func (m *Member) Err() error { return m.err }

// Heard says that something has arrived from the leader of the current epoch.
func (m *Member) Heard() { m.heard = true }

// Followed says whether a leader hears enough followers. While it does, it drops pre-votes: one follower
// whose link is broken must not depose it.
func (m *Member) Followed(enough bool) {
	if m.phase == Leading {
		m.heard = enough
	}
}

// Suspect says that the leader was silent for too long. The member asks for pre-votes. A witness only
// grants them from now on.
func (m *Member) Suspect() error {
	m.heard = false
	if m.config.witness() {
		return nil
	}
	return m.node.Campaign()
}

// Confirm asks a majority whether this member still leads: another one may have been elected that it has not heard
// of. It returns a number for Ready.Confirmed, 0 if this member does not lead. There is no answer once the
// epoch has ended.
func (m *Member) Confirm() uint64 {
	if m.phase != Leading {
		return 0
	}
	m.asks++
	m.node.Confirm(m.asks)
	return m.asks
}

// Tick makes the leader repeat what may be lost.
func (m *Member) Tick() {
	m.node.Tick()
	if m.phase == Following {
		return
	}
	config := m.Config()
	for _, id := range config.Holders() {
		if m.told[id] > 0 {
			m.told[id]--
			continue
		}
		if _, has := m.reports[id]; id != m.config.Self && !has && !m.linked[id] {
			m.send(Message{To: id, Kind: KindSeal, Epoch: m.epoch})
		}
	}
}

func (m *Member) send(one Message) {
	one.From = m.config.Self
	m.todo.Messages = append(m.todo.Messages, one)
}

// Step handles a message.
func (m *Member) Step(one Message) error {
	if one.Kind != KindElection && one.Epoch == m.epoch && one.From == m.node.Leader() {
		m.heard = true
	}
	switch one.Kind {
	case KindElection:
		return m.elect(one)
	case KindSeal:
		if one.Epoch == m.epoch && m.ended == m.epoch && one.From == m.node.Leader() && one.From != m.config.Self && !m.config.witness() {
			m.asked, m.todo.EndLinks = one.From, true
		}
	case KindReport:
		return m.reported(one)
	case KindFollow:
		return m.follow(one)
	default:
		return fmt.Errorf("a message of kind %d is not known", one.Kind)
	}
	return nil
}

func (c *MemberConfig) witness() bool {
	all := Config{Witnesses: c.Witnesses}
	return all.Witness(c.Self)
}

// elect passes a message of an election on.
func (m *Member) elect(one Message) error {
	switch {
	case one.Election == nil || one.Election.GetFrom() != uint64(one.From) || one.Election.GetTo() != uint64(m.config.Self):
		return fmt.Errorf("a message of an election is from member %d to member %d, and came from %d", one.Election.GetFrom(), one.Election.GetTo(), one.From)
	case one.Election.GetType() == raftpb.MsgPreVote && !m.allows(one):
		return nil
	}
	err := m.node.Step(one.Election)
	if errors.Is(err, election.ErrBroken) {
		m.err = err
	}
	return err
}

// maxPassed is how many pre-votes of a candidate a member drops in an epoch in favor of another.
const maxPassed = 2

// allows reports whether a candidate may try. A member drops pre-votes while it hears the leader. It
// also drops the first ones of a candidate whose log is behind its own, or as long: this member is the
// better leader, and two candidates must not split the votes.
func (m *Member) allows(one Message) bool {
	if one.From == m.node.Leader() {
		m.heard = false // it does not lead any more
	}
	if m.heard {
		return false
	}
	own := m.config.Log().End
	better := one.End.Less(own) || one.End == own && one.From > m.config.Self
	if !better || m.config.witness() || m.node.Newer(one.Election) || m.passed[one.From] >= maxPassed {
		return true
	}
	m.passed[one.From]++
	return false
}

// Ready returns what must be done. ok is false if there is nothing to do.
func (m *Member) Ready() (r Ready, ok bool) {
	e, some := m.node.Ready()
	r, m.todo = m.todo, Ready{}
	r.Save, r.Confirmed = e.Save, e.Confirmed
	if epoch := m.node.Epoch(); epoch != m.epoch {
		m.epoch, m.heard, r.EndLinks = epoch, false, true
		clear(m.passed)
		m.follows()
		r.Messages, r.Follow, r.Fetch, r.Begin, r.Confirmed = nil, nil, nil, 0, 0 // they are of an earlier epoch
	} else if !m.node.Leads() && m.phase != Following { // it was removed
		r.EndLinks = true
		m.follows()
	}
	if len(e.Messages) > 0 {
		end := m.config.Log().End
		for _, one := range e.Messages {
			r.Messages = append(r.Messages, Message{From: m.config.Self, To: uint32(one.GetTo()), Kind: KindElection, Election: one, End: end})
		}
	}
	return r, some || r.some()
}

func (r *Ready) some() bool {
	return r.EndLinks || r.Configure != nil || len(r.Messages) > 0 || r.Follow != nil || r.Fetch != nil || r.Begin != 0
}

// follows ends the member's leadership.
func (m *Member) follows() {
	m.phase, m.asked, m.from = Following, 0, 0
	m.reports, m.linked, m.told, m.awaited = nil, nil, nil, nil
}

// Advance says that a Ready was handled.
func (m *Member) Advance(r Ready) {
	m.ended = m.epoch
	if err := m.node.Advance(); err != nil {
		m.err = err
		return
	}
	if now := m.node.Members(); !equal(m.members, now) {
		m.members = now
		m.reconfigured()
	}
	if m.node.Leads() && m.phase == Following && m.node.Epoch() == m.epoch {
		m.phase, m.reports, m.linked, m.told = Sealing, map[uint32]Message{}, map[uint32]bool{}, map[uint32]int{}
		m.Tick()
	}
	if m.asked != 0 {
		m.report()
	}
	m.evaluate()
}

// report tells the leader about the log. No link is open.
func (m *Member) report() {
	m.serial++
	m.send(Message{To: m.asked, Kind: KindReport, Epoch: m.epoch, Serial: m.serial, Log: m.config.Log()})
	m.asked = 0
}

var errDiverged = errors.New("the group's leader does not have records that this member knows to be committed: its log is damaged, or it is of another group")

// follow handles the leader's answer to a report.
func (m *Member) follow(one Message) error {
	if one.Epoch != m.epoch || one.From != m.node.Leader() || one.Serial != m.serial || m.asked != 0 || m.todo.EndLinks {
		return nil // it answers an earlier report
	}
	l := m.config.Log()
	if one.After < l.Committed {
		m.err = fmt.Errorf("%w (up to position %d, and the logs agree up to %d)", errDiverged, l.Committed, one.After)
		return m.err
	}
	if one.After > l.End.Position {
		return fmt.Errorf("the leader sends records after position %d, and the log ends at %d", one.After, l.End.Position)
	}
	m.serial++ // a repeated message is ignored
	m.todo.Follow = &Follow{Leader: one.From, Epoch: one.Epoch, After: one.After, Until: one.Until}
	return nil
}
