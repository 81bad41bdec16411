package group

import (
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestFirstSeconds: a group takes messages as soon as it has its first leader, from a client that was there before, and that
// leader stays.
func TestFirstSeconds(t *testing.T) {
	testenv.Root(t)
	g := groupOf(t, 1, "durable", 1)
	g.load()
	began := time.Now()
	for i := range members {
		g.start(i)
	}
	who, _ := g.leader(-1, 0)
	leads := time.Now()
	testenv.Wait(t, testenv.Within(limit), "the first message to be committed", func() bool {
		s := g.status(who)
		return s != nil && s.Committed > 1 // the first record is the leader's own
	})
	waited := time.Since(leads)
	t.Logf("a member leads %v after the first daemon was started, and a message is committed %v later", leads.Sub(began).Round(time.Millisecond), waited.Round(time.Millisecond))
	if most := testenv.Within(suspect + 300*time.Millisecond); waited > most {
		t.Errorf("a client has waited %v for the first leader, want %v at most", waited, most)
	}
	g.client.Await(t, limit)
	elected := 0
	for i := range members {
		text := g.now[i].Log.String()
		elected += strings.Count(text, "this member leads the group")
		if strings.Contains(text, "cut off") {
			t.Errorf("the log of member %d was cut", i+1)
		}
	}
	if elected != 1 {
		t.Errorf("%d leaders were elected in the first seconds", elected)
	}
}
