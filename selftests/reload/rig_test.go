package reload

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// program is the path of the program under test, and flowTest that of its clients, built once.
var program, flowTest string

func TestMain(m *testing.M) { os.Exit(daemon.WithPrograms(m.Run, &program, &flowTest)) }

// wire is a veth pair between the namespaces, beside that for RDMA. Its ends have the same name.
type wire struct {
	name string
	net  int // of its addresses
}

// Packets that are captured, and that are sent on; and what flows come to and leave.
var (
	captured = wire{"cap", 1}
	fed      = wire{"fed", 2}
	spares   = []wire{{"one", 3}, {"two", 4}}
)

// join makes the wire. The kernel says nothing on it by itself.
func (w wire) join(t *testing.T, p *testenv.Pair) {
	t.Helper()
	p.A.Run(t, "ip", "link", "add", w.name, "type", "veth", "peer", "name", w.name, "netns", p.B.Name)
	for i, e := range []*testenv.End{&p.A, &p.B} {
		e.Run(t, "sysctl", "-qw", "net.ipv6.conf."+w.name+".disable_ipv6=1")
		e.Run(t, "ip", "address", "add", fmt.Sprintf("10.78.%d.%d/24", w.net, i+1), "dev", w.name)
		e.Run(t, "ip", "link", "set", w.name, "up")
	}
}

// client is one run of unified-flow-test.
type client struct {
	*exec.Cmd
	said  bytes.Buffer
	ended chan struct{}
	err   error // how it ended, once ended is closed
}

// flowTest starts one at end A.
func (r *rig) flowTest(args ...string) *client {
	r.t.Helper()
	c := &client{Cmd: r.A.Command(flowTest, args...), ended: make(chan struct{})}
	c.Stdout, c.Stderr = &c.said, &c.said
	if err := c.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() { c.err = c.Wait(); close(c.ended) }()
	r.t.Cleanup(func() { _ = c.Process.Kill(); <-c.ended })
	return c
}

// over reports whether the client has ended.
func (c *client) over() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// await waits for the client's end, which must be a success.
func (c *client) await(t *testing.T) {
	t.Helper()
	select {
	case <-c.ended:
		if c.err != nil {
			t.Errorf("%v: %v\n%s", c.Args, c.err, &c.said)
		}
	case <-time.After(testenv.Within(5 * time.Minute)):
		t.Errorf("%s did not end\n%s", strings.Join(c.Args, " "), &c.said)
	}
}
