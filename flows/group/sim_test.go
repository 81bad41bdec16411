package group

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"

	"github.com/unifiedd/unifiedd/flows/group/election"
)

// The simulation runs the members of a group in one thread. A random number decides everything that
// happens: which message is delivered, lost or repeated, when a disk goes on, who crashes in which
// step of a Ready, and what the crash loses. The same seed repeats a run.

// level is the durability that acknowledged records have.
type level int

const (
	received level = iota
	written
	durable
)

// sim is a group and its clients.
type sim struct {
	*rand.Rand
	level     level
	nodes     []*simNode // by number - 1
	witnesses []uint32
	wire      []Message          // in flight
	blocked   map[[2]uint32]bool // from, to: nothing arrives
	links     []*simLink
	clients   []*simClient
	agreed    []record // every record that was committed anywhere
	leaders   map[uint64]uint32
	changes   int // changes of members that were begun
	rates     rates
	fewest    int  // voters that the group had at any time
	anyTurn   bool // members vote as if each candidate had the better log
	quiet     int  // acts for which clients do nothing
	calm      bool
	fault     error // an invariant is broken
	log       []string
}

// rates are percentages that make runs different: some have many elections, others many changes of
// members. Absences are longer by up to away acts.
type rates struct{ suspect, fail, freeze, change, strike, exile, client, swift, away int }

func (s *sim) draw() rates {
	pick := func(all ...int) int { return all[s.IntN(len(all))] }
	switch kind := s.IntN(10); {
	case kind < 3: // new leaders fail soon
		return rates{suspect: 100, strike: 100, swift: 100}
	case kind < 5: // leaders go on alone while the others elect a new one, and clients look for a leader
		return rates{suspect: pick(15, 30), fail: pick(0, 5), freeze: pick(0, 3), exile: 80, client: 20, swift: 100, away: 2000}
	case kind < 8: // members change again and again
		return rates{suspect: pick(30, 100), fail: pick(0, 5, 20), freeze: pick(0, 30), change: 100, strike: pick(0, 50, 90)}
	}
	return rates{suspect: pick(5, 30, 100), fail: pick(0, 5, 20, 60), freeze: pick(0, 5, 30), change: pick(0, 30, 100), strike: pick(0, 50, 90)}
}

// record is a record of the log: control records have session 0.
type record struct {
	Place
	session, sequence uint64
}

// simNode is a member with its disk.
type simNode struct {
	*sim
	id      uint32
	member  *Member // nil: it does not run
	frozen  int     // steps for which it does nothing
	exile   int     // steps for which nobody reaches it
	witness bool
	view    Config    // as the member last had it while it led
	sure    uint64    // the member led when it was asked with this number
	inbox   []Message // while frozen
	starts  uint64

	// On the disk.
	state      []byte   // of elections, durable
	disk       []record // written; the first durable ones are durable
	durable    int
	committed  uint64 // as the manifest has it
	recovering bool   // durable

	// In memory.
	log       Log
	memory    []record // all records
	until     uint64   // not recovering any more with the records up to here; 0: not known
	commits   *Commits
	link      *simLink // to the leader
	fetch     *simLink
	fetchTo   Place
	fetchTerm uint64
	fetchAt   uint64 // position of the fetch, and for how many rounds it has been there
	fetchWait int
	silent    int  // rounds without the leader, while calm
	busy      bool // a Ready is being handled
	doomed    int  // links move so often until a new leader fails
	hunted    bool // a new leader fails when followers have something, and not the record that begins its epoch
	slow      bool // links to it move rarely
}

// simLink carries records in order, from a leader to a follower or from a member to a leader that
// fetches. It loses nothing before it ends.
type simLink struct {
	from, to *simNode
	starts   [2]uint64 // of from and to: a link ends when one of them restarts
	epoch    uint64
	next     uint64 // of the next record to send
	fetch    bool
	records  []record // in flight
	commits  []uint64 // in flight, to the follower
	progress []safety // in flight, to the leader
	told     safety   // the last of them
	ended    [2]bool  // as from and to know
}

type safety struct{ received, written, durable uint64 }

func newSim(seed uint64, members, witnesses, spares int) *sim {
	s := &sim{Rand: rand.New(rand.NewPCG(seed, 1)), blocked: map[[2]uint32]bool{}, leaders: map[uint64]uint32{}}
	s.level, s.rates, s.anyTurn = level(s.IntN(3)), s.draw(), s.chance(50)
	s.fewest = members + witnesses
	var voters []uint32
	for i := range uint32(members + witnesses) {
		voters = append(voters, i+1)
		if int(i) >= members {
			s.witnesses = append(s.witnesses, i+1)
		}
	}
	for i := range uint32(members + witnesses + spares) {
		n := &simNode{sim: s, id: i + 1, witness: slices.Contains(s.witnesses, i+1), slow: s.chance(30)}
		first := election.First(voters)
		if int(i) >= members+witnesses {
			first = election.Joining()
		}
		n.state, _ = first.Append(nil)
		s.nodes = append(s.nodes, n)
		n.start()
	}
	for i := range 1 + s.IntN(3) {
		s.clients = append(s.clients, &simClient{sim: s, session: uint64(i + 1), window: 1 << s.IntN(3)})
	}
	return s
}

// say keeps a line for the report of a broken invariant.
func (s *sim) say(format string, v ...any) {
	if s.log = append(s.log, fmt.Sprintf(format, v...)); len(s.log) > 4000 {
		s.log = s.log[2000:]
	}
}

// broken records that an invariant is broken.
func (s *sim) broken(format string, v ...any) {
	if s.fault == nil {
		s.fault = fmt.Errorf(format, v...)
		s.say("BROKEN: %v", s.fault)
	}
}

func (s *sim) chance(percent int) bool { return s.IntN(100) < percent }

// node returns a random member.
func (s *sim) node() *simNode { return s.nodes[s.IntN(len(s.nodes))] }

// start starts a member from its disk.
func (n *simNode) start() {
	state, err := election.ParseState(n.state)
	if err != nil {
		n.broken("member %d: the state on its disk: %v", n.id, err)
		return
	}
	n.starts++
	n.memory = slices.Clone(n.disk)
	n.log = Log{Committed: min(n.committed, uint64(len(n.disk))), Recovering: n.recovering}
	for _, r := range n.memory {
		if !n.log.Append(r.Place) {
			n.broken("member %d: %v does not follow the record before it on the disk", n.id, r.Place)
		}
	}
	n.commits, n.link, n.fetch, n.until, n.sure = nil, nil, nil, 0, 0
	n.member, err = NewMember(MemberConfig{
		Self: n.id, Witnesses: n.witnesses, State: state, Serial: n.starts << 32, Logger: slog.New(slog.DiscardHandler),
		Log: func() Log {
			l := n.log
			l.Table = slices.Clone(l.Table)
			return l
		},
	})
	if err != nil {
		n.broken("member %d: %v", n.id, err)
		return
	}
	n.say("member %d starts: log ends at %v, %d committed, recovering %v", n.id, n.log.End, n.log.Committed, n.log.Recovering)
	n.work()
}

// crash stops a member. power: its machine loses its power.
func (n *simNode) crash(power bool) {
	if n.member == nil {
		return
	}
	before := len(n.memory)
	if power {
		kept := n.durable
		for kept < len(n.disk) && n.chance(50) { // some writes were on the disk, and the first missing one ends the log
			kept++
		}
		n.disk = n.disk[:kept]
		n.durable = kept
	}
	if n.level == received || n.level == written && power {
		n.recovering = n.recovering || !n.witness
	}
	n.say("member %d crashes (power %v): it had %d records and has %d on the disk", n.id, power, before, len(n.disk))
	n.member, n.memory, n.inbox, n.frozen, n.commits = nil, nil, nil, 0, nil
	for _, l := range n.links {
		if l.from == n || l.to == n {
			l.end(n)
		}
	}
}

// forgets reports whether a crash would lose what was acknowledged.
func (n *simNode) forgets(power bool) bool {
	return !n.witness && (n.level == received || n.level == written && power)
}

// damage loses durable records of a member that does not run. The start notices it: the manifest
// says how many were durable.
func (n *simNode) damage() {
	if n.member != nil || len(n.disk) == 0 || n.witness {
		return
	}
	n.disk = n.disk[:n.IntN(len(n.disk))]
	n.durable, n.recovering = len(n.disk), true
	n.say("member %d: its disk is damaged after %d records", n.id, len(n.disk))
}

// work does what the member asks for, and may crash in any step of it.
func (n *simNode) work() {
	if n.busy {
		return
	}
	n.busy = true
	defer func() { n.busy = false }()
	for n.member != nil && n.fault == nil {
		if err := n.member.Err(); err != nil {
			n.broken("member %d stops: %v", n.id, err)
			return
		}
		r, ok := n.member.Ready()
		if !ok {
			return
		}
		for step := range 7 {
			if !n.calm && n.chance(1) && n.IntN(4) == 0 && n.mayCrash(true) {
				n.crash(true)
				return
			}
			if len(n.links) > 0 && n.chance(20) { // records go on arriving meanwhile
				n.moveLink(n.links[n.IntN(len(n.links))])
			}
			n.step(step, &r)
		}
		n.sure = max(n.sure, r.Confirmed)
		n.member.Advance(r)
		if n.member.Phase() == Following {
			n.commits = nil
		}
		n.checkLeader()
		n.count()
	}
}

// step does one part of a Ready.
func (n *simNode) step(step int, r *Ready) {
	switch {
	case step == 0 && r.Save:
		n.state, _ = n.member.State().Append(nil)
	case step == 1 && r.EndLinks:
		n.endLinks()
	case step == 2 && r.Configure != nil && n.commits != nil:
		n.commit(n.commits.Configure(r.Configure))
	case step == 3:
		for _, m := range r.Messages {
			if m.Kind == KindElection && n.anyTurn { // whose turn it is must not matter for safety
				m.End = Place{^uint64(0), ^uint64(0)}
			}
			n.wire = append(n.wire, m)
		}
	case step == 4 && r.Follow != nil:
		n.cut(r.Follow.After)
		n.until = r.Follow.Until
		n.link = n.connect(n.nodes[r.Follow.Leader-1], r.Follow.Epoch, r.Follow.After+1, false)
	case step == 5 && r.Fetch != nil:
		n.cut(r.Fetch.After)
		n.fetch = n.connect(n.nodes[r.Fetch.From-1], r.Fetch.Epoch, r.Fetch.After+1, true)
		n.fetchTo, n.fetchTerm = r.Fetch.Until, r.Fetch.Epoch
	case step == 6 && r.Begin != 0:
		p := Place{r.Begin, n.log.End.Position + 1}
		n.say("member %d begins epoch %d with %v", n.id, r.Begin, p)
		n.append(record{Place: p})
		config := n.member.Config()
		n.commits = NewCommits(p.Position, n.log.Committed, &config)
		n.member.Began(r.Begin)
		n.progressed()
		if !n.calm && n.chance(n.rates.strike) {
			switch n.doomed = 0; n.IntN(5) {
			case 0, 1: // with what it has begun on its own disk only
				n.doomed = 1
			case 2:
				n.doomed = 1 + n.IntN(20)
			default:
				n.hunted = true
			}
		}
	}
}

// connect opens a link over which a member gets records.
func (n *simNode) connect(from *simNode, epoch, next uint64, fetch bool) *simLink {
	l := &simLink{from: from, to: n, starts: [2]uint64{from.starts, n.starts}, epoch: epoch, next: next, fetch: fetch}
	n.links = append(n.links, l)
	switch {
	case from.member == nil || from.frozen > 0 || n.cannot(from.id, n.id) || n.cannot(n.id, from.id):
		l.end(from)
	case fetch:
		if from.member.Epoch() != epoch || from.log.End.Position < next-1 {
			l.end(from)
		}
	case from.commits == nil || from.member.Link(n.id, epoch, next-1) != nil:
		l.end(from)
	default:
		for _, o := range n.links {
			if o != l && o.from == from && o.to == n && !o.fetch {
				o.end(from)
			}
		}
		config := from.member.Config()
		from.commits.Safe(n.id, 0)
		from.commit(from.commits.Configure(&config))
	}
	return l
}

// cannot reports whether messages from one member to another are lost now.
func (s *sim) cannot(from, to uint32) bool { return s.blocked[[2]uint32{from, to}] }

// end ends a link on one side. The other side notices it later.
func (l *simLink) end(n *simNode) {
	if l.from == n {
		l.ended[0] = true
	}
	if l.to == n {
		l.ended[1] = true
	}
}

// live reports whether a side of the link may still use it.
func (l *simLink) live(n *simNode) bool {
	if l.from == n {
		return !l.ended[0] && n.starts == l.starts[0] && n.member != nil
	}
	return !l.ended[1] && n.starts == l.starts[1] && n.member != nil
}

func (n *simNode) endLinks() {
	for _, l := range n.links {
		if l.from == n || l.to == n {
			l.end(n)
		}
	}
	n.link = nil
	if n.fetch != nil {
		n.fetch = nil
		n.member.FetchFailed(n.fetchTerm)
	}
}

// append adds a record to the log in memory.
func (n *simNode) append(r record) {
	if !n.log.Append(r.Place) {
		n.broken("member %d: %v does not follow %v", n.id, r.Place, n.log.End)
		return
	}
	n.memory = append(n.memory, r)
}

// cut removes the records after a position, durably.
func (n *simNode) cut(after uint64) {
	if after >= n.log.End.Position {
		return
	}
	n.say("member %d cuts its log after %d; it ended at %v", n.id, after, n.log.End)
	if after < n.log.Committed {
		n.broken("member %d cuts committed records: %d are committed", n.id, n.log.Committed)
	}
	n.log.Cut(after)
	n.memory = n.memory[:after]
	n.disk = n.disk[:min(uint64(len(n.disk)), after)]
	n.durable = min(n.durable, int(after))
}

// safe returns how far the log is as safe as acknowledged records must be.
func (n *simNode) safe(s safety) uint64 {
	switch n.level {
	case received:
		return s.received
	case written:
		return s.written
	}
	return s.durable
}

func (n *simNode) safety() safety {
	return safety{n.log.End.Position, uint64(len(n.disk)), uint64(n.durable)}
}

// progressed tells the leader how far this member's log is.
func (n *simNode) progressed() {
	s := n.safety()
	if n.until > 0 && n.safe(s) >= n.until && n.link != nil || n.commits != nil && n.commits.Open() && n.safe(s) >= n.commits.first {
		if n.log.Recovering {
			n.say("member %d is not recovering any more", n.id)
		}
		n.log.Recovering, n.recovering = false, false
	}
	if n.commits != nil {
		n.commit(n.commits.Safe(n.id, n.safe(s)))
	}
	if l := n.link; l != nil && l.live(n) && s != l.told { // a queue of equal ones would keep a leader from ever knowing what is committed
		l.told = s
		l.progress = append(l.progress, s)
	}
}
