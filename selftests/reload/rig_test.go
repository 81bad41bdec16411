package reload

import (
	"fmt"
	"os"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// program is the path of the program under test, and flowTest that of its clients. They are built
// once.
var program, flowTest string

func TestMain(m *testing.M) { os.Exit(daemon.WithPrograms(m.Run, &program, &flowTest)) }

// wire is a veth pair between the namespaces, in addition to that for RDMA. Its ends have the same
// name.
type wire struct {
	name string
	net  int // of its addresses
}

// The wires for packets to capture, for packets to forward, and for flows that are added and
// removed.
var (
	captured = wire{"cap", 1}
	fed      = wire{"fed", 2}
	spares   = []wire{{"one", 3}, {"two", 4}}
)

// join makes the wire. The kernel sends no packets of its own on it.
func (w wire) join(t *testing.T, p *testenv.Pair) {
	t.Helper()
	p.A.Run(t, "ip", "link", "add", w.name, "type", "veth", "peer", "name", w.name, "netns", p.B.Name)
	for i, e := range []*testenv.End{&p.A, &p.B} {
		e.Run(t, "sysctl", "-qw", "net.ipv6.conf."+w.name+".disable_ipv6=1")
		e.Run(t, "ip", "address", "add", fmt.Sprintf("10.78.%d.%d/24", w.net, i+1), "dev", w.name)
		e.Run(t, "ip", "link", "set", w.name, "up")
	}
}

// flowTest starts a client at end A.
func (r *rig) flowTest(args ...string) *daemon.Client {
	r.t.Helper()
	return daemon.StartClient(r.t, flowTest, &r.A, args...)
}
