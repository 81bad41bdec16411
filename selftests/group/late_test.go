package group

import (
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestLateLeader: a follower that is started again, and hears of its leader only some seconds later, follows it. It has
// asked for elections meanwhile, and must not do so any more before it has a link.
func TestLateLeader(t *testing.T) {
	testenv.Long(t, "it takes time, and the simulation of flows/group has such members")
	testenv.Root(t)
	g := newGroup(t, 1)
	g.leader(-1, 0)
	g.load()
	g.progresses()
	const late = 0 // it is the first to ask when a leader is silent
	who, epoch := g.leader(-1, 0)
	g.kill(late)
	if who == late {
		g.leader(late, epoch)
	}
	hear := g.ends[late].Lose(t, testenv.ToEnd, electionPort)
	g.heal(late)
	g.now[late].Until(t, "the member to ask for elections", func(s *status.Daemon) bool {
		return len(s.Flows) == 1 && s.Flows[0].Group != nil && s.Flows[0].Group.Elections > 3
	})
	time.Sleep(5 * suspect) // longer than a leader counts as alive without a link
	hear()
	begun := time.Now()
	g.settled()
	t.Logf("the member follows after %v", time.Since(begun))
	if took := time.Since(begun); took > testenv.Within(5*time.Second) {
		t.Errorf("the member follows after %v", took)
	}
	g.client.Await(t, limit)
	g.equal()
}
