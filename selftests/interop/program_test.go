package interop

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
	"github.com/unifiedd/unifiedd/selftests/lab/vm"
)

// program is a pingpong of rdma-core, with its options and the matching options of ours.
type program struct {
	name, theirs, ours string
	ipv6               bool
}

func (p program) String() string {
	text := strings.ReplaceAll(strings.TrimSpace(p.name+" "+p.theirs), " ", "_")
	if p.ipv6 {
		text += "_IPv6"
	}
	return text
}

// few are the programs of the short form.
var few = []program{
	{"ibv_rc_pingpong", "-n 100", "-peer pingpong -transport RC -n 100", false},
	{"ibv_uc_pingpong", "-n 100", "-peer pingpong -transport UC -n 100", false},
}

var programs = []program{
	{"ibv_rc_pingpong", "-n 500", "-peer pingpong -transport RC -n 500", false},
	{"ibv_rc_pingpong", "-n 50 -s 1000001", "-peer pingpong -transport RC -n 50 -size 1000001", true},
	{"ibv_uc_pingpong", "-n 500", "-peer pingpong -transport UC -n 500", false},
	{"ibv_uc_pingpong", "-n 50 -s 65537", "-peer pingpong -transport UC -n 50 -size 65537", true},
	{"ibv_ud_pingpong", "-n 500 -s 4096", "-peer pingpong -transport UD -n 500 -size 4096", false},
	{"ibv_ud_pingpong", "-n 500 -s 1", "-peer pingpong -transport UD -n 500 -size 1", true},
}

// command is the program's command line in the guest, as server or as client of where.
func (p program) command(b *bench, where string) string {
	address := b.tap.PeerIP.As16()
	if p.ipv6 {
		address = b.tap.PeerIP6.As16()
	}
	return fmt.Sprintf("%s %s -d %s -g %d %s", p.name, p.theirs, device, b.gids[fmt.Sprintf("%x", address)], where)
}

// here is our address.
func (p program) here(b *bench) string {
	if p.ipv6 {
		return b.tap.IP6.String()
	}
	return b.tap.IP.String()
}

// options are the options of our program. It waits as long as theirs.
func (p program) options() string { return p.ours + " -qp-timeout 18 -timeout 60s" }

// asClient runs the program as client of ours.
func (p program) asClient(t *testing.T, b *bench) {
	s := b.ours(t, limit, p.options(), "server")
	s.says(t, "waiting for")
	var out bytes.Buffer
	r, err := b.try(p.command(b, p.here(b)), limit, &out)
	judge(t, p.name, r, err, &out)
	s.ended(t)
	t.Logf("%s:\n%sours:\n%s", p.name, &out, s.said)
}

// asServer runs ours as client of the program, once the program listens on its TCP port. In
// /proc/net/tcp, 4853 is port 18515 in hexadecimal, and 0A is the state LISTEN.
func (p program) asServer(t *testing.T, b *bench) {
	const listens = `%s & server=$!
		until grep -qs ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6; do kill -0 $server || break; sleep 0.05; done
		echo it listens; wait $server`
	out := new(daemon.Log)
	ended := make(chan func(), 1)
	go func() {
		r, err := b.try(fmt.Sprintf(listens, p.command(b, "")), limit, out)
		ended <- func() { judge(t, p.name, r, err, out) }
	}()
	defer func() { (<-ended)() }() // the guest runs one command at a time
	testenv.Wait(t, limit, p.name+" to listen", func() bool { return strings.Contains(out.String(), "it listens") })
	s := b.ours(t, limit, p.options(), b.tap.PeerIP.String())
	s.ended(t)
	if said := s.said.String(); !strings.Contains(said, "usec") {
		t.Errorf("ours measures nothing")
	}
	t.Logf("%s:\n%sours:\n%s", p.name, out, s.said)
}

// judge reports a program in the guest that failed, or that made the guest's kernel complain.
func judge(t *testing.T, name string, r vm.Result, err error, out fmt.Stringer) {
	t.Helper()
	testenv.Must(t, err)
	if r.Code != 0 || len(r.Complaints) > 0 {
		t.Errorf("%s ends with status %d (too late: %v), the guest's kernel says %q:\n%s", name, r.Code, r.TimedOut, r.Complaints, out)
	}
}
