package cm

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/roce/mad"
)

// TestSecurityTable: SECURITY.md states the limits for peers that are not authenticated, as the
// constants have them.
func TestSecurityTable(t *testing.T) {
	text, err := os.ReadFile("../../../SECURITY.md")
	testenv.Must(t, err)
	var c Config
	c.setDefaults()
	seconds := func(code uint8) time.Duration { return mad.Duration(code).Round(100 * time.Millisecond) }
	for _, row := range []string{
		fmt.Sprintf("| connections that the peer has not confirmed, each with a queue pair | %d, and %d of one host |", maxHalfOpen, maxHalfOpenPerAddress),
		fmt.Sprintf("| for the program to accept | %v |", seconds(c.Service)),
		fmt.Sprintf("| then for the peer to confirm | %v |", HalfOpenTime),
		fmt.Sprintf("| requests that no program has taken | %d of each listener |", cm.DefaultBacklog),
		fmt.Sprintf("| connections in all | %d |", c.Connections),
		fmt.Sprintf("| those that are over, kept for | %v at most |", seconds(longestWait)),
		fmt.Sprintf("| addresses looked for | %d, and %d of one network, for %v |", maxLookups, maxLookupsPerNetwork, LookupTime),
		fmt.Sprintf("| messages that wait for an address | %d each way, of %d bytes |", maxPending, mad.Size),
		fmt.Sprintf("| questions to a peer whose queue pair a REQ claims | %d in %v, then none for %v |", ProbeTries, ProbeTries*ProbeWait, ProbeRest),
		fmt.Sprintf("| a peer that has restarted is refused for | %v at most |", RestartLimit),
	} {
		if !strings.Contains(string(text), row) {
			t.Errorf("SECURITY.md lacks %q", row)
		}
	}
	if longest := ProbeRest + ProbeTries*ProbeWait + mad.Duration(longestWait); longest > RestartLimit {
		t.Errorf("a peer may be refused for %v, and the documents say %v", longest, RestartLimit)
	}
}
