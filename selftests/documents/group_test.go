package documents

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// groupDocument is the name of the configuration of a group.
const groupDocument = "groups.md.1"

// TestGroup: three daemons with the configuration of a group, each with the changes that the document
// names, keep what a client appends.
func TestGroup(t *testing.T) {
	testenv.Root(t)
	all := documents(t)
	i := slices.IndexFunc(all, func(d document) bool { return d.name == groupDocument })
	if i < 0 {
		t.Fatal("docs/groups.md has no configuration")
	}
	ends := testenv.NewSwitch(t, 4, testenv.PairOptions{MTU: 4200})
	var members []*daemon.Daemon
	for n, e := range ends {
		e.Run(t, "ip", "link", "set", e.Ifname, "down")
		e.Run(t, "ip", "link", "set", e.Ifname, "name", "eth1")
		e.Run(t, "ip", "link", "set", "eth1", "up")
		e.Run(t, "ip", "address", "flush", "dev", "eth1")
		e.Run(t, "ip", "address", "add", fmt.Sprintf("10.0.0.%d/24", n+1), "dev", "eth1")
		if n == len(ends)-1 {
			break // the client
		}
		f := newFiles(t)
		own := strings.NewReplacer("self: a", fmt.Sprintf("self: %c", 'a'+n), "listen: 10.0.0.1", fmt.Sprintf("listen: 10.0.0.%d", n+1))
		members = append(members, daemon.Launch(t, f.wrapper, e, f.dir, own.Replace(all[i].text)))
	}
	client := daemon.StartClient(t, flowTest, ends[3], "append", "-to", "10.0.0.1:7471,10.0.0.2:7471,10.0.0.3:7471", "-flow", "orders",
		"-count", "100", "-device", "roce:eth1", "-ordinary", "-memory", "33554432", "-timeout", "30s")
	client.Await(t, 40*time.Second)
	for _, m := range members {
		m.Until(t, "a member to have everything as committed", func(s *status.Daemon) bool {
			return len(s.Flows) == 1 && s.Flows[0].Group != nil && s.Flows[0].Group.Committed > 100
		})
		m.Terminate(t)
	}
}
