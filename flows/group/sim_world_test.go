package group

import (
	"slices"

	"github.com/unifiedd/unifiedd/flows/group/election"
)

// commit publishes committed records, which then must never change.
func (n *simNode) commit(to uint64) {
	if to > n.log.End.Position {
		n.broken("member %d: position %d is committed, and its log ends at %v", n.id, to, n.log.End)
		return
	}
	for at := n.log.Committed; at < to; at++ {
		r := n.memory[at]
		if at < uint64(len(n.agreed)) {
			if n.agreed[at] != r {
				n.broken("member %d commits %+v at position %d; %+v was committed there", n.id, r, at+1, n.agreed[at])
				return
			}
			continue
		}
		n.agreed = append(n.agreed, r)
	}
	if to > n.log.Committed {
		n.log.Committed = to
		n.tell()
	}
}

// tell tells the followers what is committed.
func (n *simNode) tell() {
	for _, l := range n.links {
		if l.from == n && !l.fetch && l.live(n) {
			l.commits = append(l.commits, n.log.Committed)
		}
	}
}

// checkLeader checks that an epoch has one leader.
func (n *simNode) checkLeader() {
	if n.member.Phase() == Following {
		return
	}
	e := n.member.Epoch()
	if other, has := n.leaders[e]; has && other != n.id {
		n.broken("members %d and %d both lead epoch %d", other, n.id, e)
	} else if !has {
		n.leaders[e] = n.id
		n.say("member %d is elected for epoch %d; its log ends at %v", n.id, e, n.log.End)
	}
}

// deliver delivers a message in flight.
func (s *sim) deliver(i int) {
	m := s.wire[i]
	if s.calm || !s.chance(5) { // else it is delivered again later
		s.wire[i] = s.wire[len(s.wire)-1]
		s.wire = s.wire[:len(s.wire)-1]
	}
	n := s.nodes[m.To-1]
	if n.member == nil || s.cannot(m.From, m.To) || !s.calm && s.chance(5) {
		return
	}
	if n.frozen > 0 {
		n.inbox = append(n.inbox, m)
		return
	}
	n.receive(m)
}

func (n *simNode) receive(m Message) {
	if n.member == nil {
		return
	}
	if m.Kind == KindElection {
		if m.Election.GetTerm() == n.member.Epoch() && m.From == n.member.Leader() {
			n.silent = 0
		}
	} else if m.From == n.member.Leader() {
		n.silent = 0
	}
	if err := n.member.Step(m); err != nil && n.member.Err() == nil {
		n.broken("member %d gets %+v: %v", n.id, m, err)
	}
	n.work()
}

// moveLink moves something along a link. What is in flight still arrives when only the other side has
// ended the link.
func (s *sim) moveLink(l *simLink) {
	from, to := l.from, l.to
	if from.frozen > 0 || to.frozen > 0 || to.slow && !s.calm && s.chance(80) {
		return
	}
	cut := s.cannot(from.id, to.id) || s.cannot(to.id, from.id)
	if cut || (!l.live(from) || !l.live(to)) && s.chance(20) {
		s.breakLink(l)
		return
	}
	if from.doomed > 0 && !l.fetch && !s.calm {
		if from.doomed--; from.doomed == 0 {
			from.strike()
			return
		}
	}
	switch s.IntN(4) {
	case 0: // the sender posts a record
		if end := from.log.End.Position; l.live(from) && l.next <= end && (!l.fetch || l.next <= to.fetchTo.Position) && len(l.records) < 64 {
			l.records = append(l.records, from.memory[l.next-1])
			l.next++
		}
	case 1:
		if len(l.records) > 0 && l.live(to) {
			r := l.records[0]
			l.records = l.records[1:]
			to.arrives(l, r)
		}
	case 2:
		if len(l.progress) > 0 && l.live(from) && from.commits != nil && !l.fetch {
			p := l.progress[0]
			l.progress = l.progress[1:]
			from.commit(from.commits.Safe(to.id, from.safe(p)))
			from.progressed()
			if from.hunted && !s.calm && from.commits != nil && !from.commits.Open() && from.safe(p) > from.log.Committed && s.chance(50) {
				from.hunted = false
				from.strike()
			}
		}
	case 3:
		if len(l.commits) > 0 && l.live(to) && to.link == l {
			c := l.commits[0]
			l.commits = l.commits[1:]
			to.silent = 0
			to.member.Heard()
			to.commit(min(c, to.log.End.Position))
		}
	}
}

// arrives handles a record that arrives over a link.
func (n *simNode) arrives(l *simLink, r record) {
	if n.link != l && n.fetch != l {
		return
	}
	n.silent = 0
	n.append(r)
	n.progressed()
	if l.fetch && n.log.End == n.fetchTo {
		n.say("member %d has fetched up to %v", n.id, n.fetchTo)
		l.end(n)
		l.end(l.from)
		n.fetch = nil
		n.member.Fetched(n.fetchTerm)
		n.work()
	}
}

// breakLink ends a link on the sides that do not know it yet.
func (s *sim) breakLink(l *simLink) {
	for _, n := range []*simNode{l.from, l.to} {
		if !l.live(n) || !s.calm && s.chance(50) {
			continue
		}
		l.end(n)
		switch {
		case n == l.from && !l.fetch:
			n.member.Unlink(l.to.id, l.epoch)
		case n == l.to && n.fetch == l:
			n.fetch = nil
			n.member.FetchFailed(n.fetchTerm)
		case n == l.to && n.link == l:
			n.link = nil
		}
		n.work()
	}
	if !l.live(l.from) && !l.live(l.to) {
		s.links = slices.DeleteFunc(s.links, func(o *simLink) bool { return o == l })
	}
}

// moveDisk writes or flushes something.
func (n *simNode) moveDisk() {
	if n.member == nil || n.frozen > 0 {
		return
	}
	switch {
	case n.chance(60):
		if len(n.disk) < len(n.memory) {
			upTo := len(n.disk) + 1 + n.IntN(len(n.memory)-len(n.disk))
			n.disk = append(n.disk, n.memory[len(n.disk):upTo]...)
		}
	default:
		n.durable = len(n.disk)
	}
	if n.chance(20) {
		n.committed = max(n.committed, min(n.log.Committed, uint64(n.durable)))
	}
	n.progressed()
	if n.commits != nil {
		n.work()
	}
}

// mayCrash reports whether a member may crash without breaking the promise: only a minority may
// forget at the same time.
func (n *simNode) mayCrash(power bool) bool {
	if !n.forgets(power) {
		return true
	}
	return n.forgetful(n) < n.minority()
}

// forgetful counts the members that have forgotten something, without one of them.
func (s *sim) forgetful(but *simNode) (count int) {
	for _, n := range s.nodes {
		if n != but && n.recovering {
			count++
		}
	}
	return count
}

// minority is how many members may fail at a time.
func (s *sim) minority() int {
	if len(s.witnesses) == 0 {
		return (s.fewest - 1) / 2
	}
	least := len(s.nodes)
	for _, n := range s.nodes {
		for _, of := range [][]uint32{n.view.Members.Voters, n.view.Members.Outgoing} {
			if holders, _ := n.view.voters(of); len(holders) > 0 {
				least = min(least, len(holders))
			}
		}
	}
	return least - 1
}

// count keeps how many voters the smallest set of voters had.
func (n *simNode) count() {
	c := n.member.Config()
	if n.commits != nil {
		n.view = c // one that has just started may have older members for a while
	}
	for _, of := range [][]uint32{c.Members.Voters, c.Members.Outgoing} {
		if len(of) > 0 {
			n.fewest = min(n.fewest, len(of))
		}
	}
}

// act lets something happen.
func (s *sim) act() {
	switch n := s.node(); s.IntN(40) {
	case 0, 1, 2, 3, 4, 5, 6, 7, 8, 9:
		if len(s.wire) > 0 {
			s.deliver(s.IntN(len(s.wire)))
		}
	case 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21:
		if len(s.links) > 0 {
			s.moveLink(s.links[s.IntN(len(s.links))])
		}
	case 22, 23, 24, 25, 26:
		n.moveDisk()
	case 27, 28, 29:
		if s.quiet == 0 {
			s.clients[s.IntN(len(s.clients))].act()
		}
	case 30, 31:
		n.tick()
	case 32:
		if s.chance(s.rates.suspect) {
			n.suspect()
		}
	case 33:
		s.partition()
	case 34:
		if s.chance(s.rates.fail) {
			n.fail()
		}
	case 35, 36:
		if n.member == nil && s.chance(30) {
			n.start()
		}
	case 37:
		if n.frozen == 0 && s.chance(s.rates.freeze) {
			n.frozen = 1 + s.IntN(200+s.rates.away)
			s.say("member %d stops for a while", n.id)
		}
	case 38:
		if n.frozen > 0 && s.chance(30) {
			n.thaw()
		}
	case 39:
		if s.chance(s.rates.change) {
			for _, n := range s.nodes {
				n.change()
			}
		}
	}
	if len(s.wire) > 0 && s.chance(s.rates.swift) { // elections end sooner than those that are away come back
		s.deliver(s.IntN(len(s.wire)))
	}
	if s.quiet == 0 && s.chance(s.rates.client) {
		s.clients[s.IntN(len(s.clients))].act()
	}
	s.quiet = max(0, s.quiet-1)
	for _, n := range s.nodes {
		if n.frozen > 0 {
			if n.frozen--; n.frozen == 0 {
				n.thaw()
			}
		}
		if n.exile > 0 {
			n.exile--
			n.banish(n.exile > 0)
		}
	}
}

// thaw lets a frozen member handle what has arrived. What a client has sent may come before what members have.
func (n *simNode) thaw() {
	n.frozen = 0
	if c := n.clients[n.IntN(len(n.clients))]; !n.calm && n.quiet == 0 && n.chance(50) {
		c.ask(n)
		c.act()
	}
	in := n.inbox
	n.inbox = nil
	for _, m := range in {
		n.receive(m)
	}
}

func (n *simNode) tick() {
	if n.member != nil && n.frozen == 0 {
		n.member.Tick()
		n.tell()
		n.work()
	}
}

func (n *simNode) suspect() {
	if n.member != nil && n.frozen == 0 && !n.witness {
		_ = n.member.Suspect() // fails on a leader
		n.work()
	}
}

// partition changes which members cannot reach which others.
func (s *sim) partition() {
	if s.rates.away > 0 && slices.ContainsFunc(s.nodes, func(n *simNode) bool { return n.exile > 0 }) {
		return // the others have time to elect a leader, and to commit something
	}
	switch s.IntN(8) {
	case 0, 1:
		clear(s.blocked)
	case 6: // one member comes back
		back := s.node().id
		for _, n := range s.nodes {
			delete(s.blocked, [2]uint32{back, n.id})
			delete(s.blocked, [2]uint32{n.id, back})
		}
	case 2, 7: // a leader that goes on leading alone
		for _, n := range s.nodes {
			if n.commits != nil && n.commits.Open() && n.exile == 0 && s.chance(s.rates.exile) {
				if s.rates.away > 0 {
					clear(s.blocked)
				}
				n.exile = 200 + n.IntN(1500+2*n.rates.away)
				n.banish(true)
			}
		}
	case 3: // one way
		s.blocked[[2]uint32{s.node().id, s.node().id}] = true
	case 4: // one member alone
		alone := s.node().id
		for _, n := range s.nodes {
			s.blocked[[2]uint32{alone, n.id}], s.blocked[[2]uint32{n.id, alone}] = true, true
		}
	case 5: // two halves
		half := s.Uint32()
		for _, a := range s.nodes {
			for _, b := range s.nodes {
				if half>>a.id&1 != half>>b.id&1 {
					s.blocked[[2]uint32{a.id, b.id}] = true
				}
			}
		}
	}
}

// fail crashes a member, or damages the disk of one that does not run.
func (n *simNode) fail() {
	power := n.chance(50)
	switch {
	case n.member == nil:
		if n.chance(10) && n.forgetful(n) < n.minority() {
			n.damage()
		}
	case n.mayCrash(power):
		n.crash(power)
	}
}

// strike makes a new leader fail. Often the one before comes back, with what it has begun alone.
func (n *simNode) strike() {
	power := n.chance(50)
	if n.chance(70) {
		for _, o := range n.nodes {
			if o != n && o.exile > 0 {
				o.exile = 0
				o.banish(false)
			}
		}
	}
	switch kind := n.IntN(3); {
	case kind == 0 && !n.busy && n.mayCrash(power):
		n.crash(power)
	case kind == 1:
		n.frozen = 50<<n.IntN(6) + n.IntN(100)
	default:
		n.exile = 50<<n.IntN(6) + n.IntN(100)
		n.banish(true)
	}
}

// banish makes a member unreachable, or reachable again.
func (n *simNode) banish(yes bool) {
	for _, o := range n.nodes {
		for _, way := range [][2]uint32{{o.id, n.id}, {n.id, o.id}} {
			if yes {
				n.blocked[way] = true
			} else {
				delete(n.blocked, way)
			}
		}
	}
}

// change begins or ends a change of the members, on a leader.
func (n *simNode) change() {
	if n.member == nil || n.frozen > 0 || n.commits == nil {
		return
	}
	defer n.work()
	c, p := n.member.Config(), n.commits.Progress()
	if len(c.Members.Outgoing) > 0 || n.chance(50) {
		_ = n.member.Keep(func(id uint32) bool { return n.away(id) || n.chance(20) }, p)
		return
	}
	change := election.Change{}
	switch other := n.node().id; {
	case n.nodes[other-1].witness:
		return
	case len(c.Members.Learners) > 0 && n.chance(70):
		change.Voters = c.Members.Learners
		if len(n.witnesses) > 0 {
			change.Voters = change.Voters[:1]
			if n.chance(50) {
				_ = n.member.Await(change.Voters)
				return
			}
		}
		for _, id := range c.Members.Voters {
			if n.chance(60) && len(c.Members.Voters)+len(change.Voters)-len(change.Remove) > 3 && !n.nodes[id-1].witness {
				change.Remove = append(change.Remove, id)
			}
		}
	case !slices.Contains(c.Members.Voters, other):
		change.Learners = []uint32{other}
	case len(c.Members.Voters) > 3:
		change.Remove = []uint32{other}
	}
	if n.member.Change(change, p) == nil {
		n.changes++
		n.quiet = n.IntN(400)
		if n.chance(40) { // its successor ends the change
			n.doomed = 1 + n.IntN(30)
		}
		n.say("member %d changes the members: %+v", n.id, change)
	}
}

// away reports whether a leader has no link to a follower.
func (n *simNode) away(follower uint32) bool {
	return !slices.ContainsFunc(n.links, func(l *simLink) bool {
		return l.from == n && l.to.id == follower && !l.fetch && l.live(n) && l.live(l.to)
	})
}
