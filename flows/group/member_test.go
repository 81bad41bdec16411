package group

import (
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
)

// TestSimulation: no schedule of losses, partitions, pauses, crashes and damage breaks the group's
// promises. When all faults end, the group takes records again and all logs become equal.
func TestSimulation(t *testing.T) {
	runs := uint64(2000)
	if testing.Short() {
		runs = 100
	}
	if n, err := strconv.ParseUint(os.Getenv("UNIFIEDD_RUNS"), 10, 64); err == nil {
		runs = n
	}
	parts := uint64(runtime.GOMAXPROCS(0))
	var epochs, records, changes atomic.Int64
	t.Run("parts", func(t *testing.T) {
		for part := range parts {
			t.Run(strconv.FormatUint(part, 10), func(t *testing.T) {
				t.Parallel()
				for seed := part; seed < runs; seed += parts {
					s := simulate(seed)
					if s.fault != nil {
						for _, line := range s.log {
							t.Log(line)
						}
						t.Fatalf("seed %d: %v", seed, s.fault)
					}
					epochs.Add(int64(len(s.leaders)))
					records.Add(int64(len(s.agreed)))
					changes.Add(int64(s.changes))
				}
			})
		}
	})
	t.Logf("%d runs: %d epochs, %d records committed, %d changes of members", runs, epochs.Load(), records.Load(), changes.Load())
}

// simulate makes one run.
func simulate(seed uint64) *sim {
	kinds := []struct{ members, witnesses, spares int }{{3, 0, 0}, {3, 0, 2}, {5, 0, 0}, {3, 0, 3}, {2, 1, 0}, {2, 1, 1}}
	k := kinds[seed%uint64(len(kinds))]
	s := newSim(seed, k.members, k.witnesses, k.spares)
	for range 3000 + s.IntN(20000) {
		if s.act(); s.fault != nil {
			return s
		}
	}
	s.settle()
	s.check()
	return s
}

// impatient ends a fetch that gets nothing any more: the other member may have lost, in a crash, records
// that it had reported.
func (n *simNode) impatient() {
	if n.fetch == nil || n.fetch.next != n.fetchAt {
		n.fetchWait = 0
		if n.fetch != nil {
			n.fetchAt = n.fetch.next
		}
		return
	}
	if n.fetchWait++; n.fetchWait > 8 {
		n.breakLink(n.fetch)
	}
}

// settle ends all faults, and waits until all logs are equal.
func (s *sim) settle() {
	s.say("all faults end")
	s.calm = true
	clear(s.blocked)
	for _, n := range s.nodes {
		n.exile = 0
		n.thaw()
		if n.member == nil {
			n.start()
		}
	}
	target, longest := uint64(0), 0 // a member may lack all records of the longest log
	for _, n := range s.nodes {
		longest = max(longest, len(n.memory))
	}
	for round := range 400 + longest {
		for range 200 {
			if len(s.wire) > 0 {
				s.deliver(s.IntN(len(s.wire)))
			}
			if len(s.links) > 0 {
				s.moveLink(s.links[s.IntN(len(s.links))])
			}
			s.node().moveDisk()
			if s.fault != nil {
				return
			}
		}
		for _, n := range s.nodes {
			n.tick()
			if n.commits != nil {
				_ = n.member.Keep(n.away, n.commits.Progress()) // fails while something is under way
				n.work()
			}
			n.impatient()
			if n.silent++; n.silent > 3 && n.member.Phase() == Following {
				n.suspect()
			}
		}
		for _, c := range s.clients {
			c.act()
			c.heard()
		}
		if round == 10 {
			target = uint64(len(s.agreed)) + 5
		}
		if target > 0 && s.settled(target) {
			return
		}
	}
	for _, n := range s.nodes {
		s.say("member %d: %v in epoch %d, leader %d, log %+v, %+v", n.id, n.member.Phase(), n.member.Epoch(), n.member.Leader(), n.log, n.member.Config().Members)
	}
	s.broken("the group does not take records again")
}

// settled reports whether every member of the group has committed a number of records.
func (s *sim) settled(target uint64) bool {
	for _, leader := range s.nodes {
		if leader.commits == nil || !leader.commits.Open() {
			continue
		}
		c := leader.member.Config()
		for _, id := range c.Holders() {
			if s.nodes[id-1].log.Committed < target {
				return false
			}
		}
		return true
	}
	return false
}
