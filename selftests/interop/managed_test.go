package interop

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// managedProgram is a program that connects through rdma_cm, with its options and the matching
// options of ours. says is what the program prints at its end; asked and served are what ours
// prints as its client and as its server.
type managedProgram struct{ name, theirs, ours, says, asked, served string }

var managedPrograms = []managedProgram{
	{"rping", "-C 10 -S 1000 -V -v", "-peer rping -n 10 -size 1000", "ping data: rdma-ping-9: ", "10 pings", "10 pings"},
	{"ib_write_bw", "-R -n 200 -u 20", "-R -peer ib_write_bw -n 200", "BW peak", "BW peak", "done"},
	{"ib_send_lat", "-R -n 200 -u 20", "-R -peer ib_send_lat -n 200", "t_typical", "usec", "done"},
	{"ib_read_lat", "-R -n 200 -u 20", "-R -peer ib_read_lat -n 200", "t_typical", "usec", "done"},
}

// managed runs programs that connect through rdma_cm: the kernel's connection manager against ours.
// Only the long form runs it.
func (b *bench) managed(t *testing.T, all []managedProgram) {
	b.run(t, "modprobe rdma_ucm")
	for _, p := range all {
		t.Run("client_"+p.name, func(t *testing.T) { p.asClient(t, b, b.tap.IP.String()) })
		t.Run("server_"+p.name, func(t *testing.T) { p.asServer(t, b) })
	}
	t.Run("client_rping_IPv6", func(t *testing.T) { all[0].asClient(t, b, b.tap.IP6.String()) })
	t.Run("refused", b.managedRefused)
}

// command is the program's command line. rping needs its server's address and -c or -s.
func (p managedProgram) command(b *bench, where string) string {
	switch {
	case p.name != "rping":
		return fmt.Sprintf("%s %s -d %s %s", p.name, p.theirs, device, where)
	case where == "":
		return fmt.Sprintf("rping -s -a %v -S 1000 -v", b.tap.PeerIP)
	}
	return fmt.Sprintf("rping -c -a %s %s", where, p.theirs)
}

func (p managedProgram) options() string { return p.ours + " -qp-timeout 18 -timeout 60s" }

// asClient runs the program as client of ours.
func (p managedProgram) asClient(t *testing.T, b *bench, here string) {
	s := b.ours(t, limit, p.options(), "server")
	s.says(t, "waiting for")
	var out bytes.Buffer
	r, err := b.try(p.command(b, here), limit, &out)
	judge(t, p.name, r, err, &out)
	s.ended(t)
	if said := out.String(); !strings.Contains(said, p.says) || !strings.Contains(s.said.String(), p.served) {
		t.Errorf("%s:\n%sours:\n%s", p.name, said, s.said)
	}
}

// asServer runs ours as client of the program.
func (p managedProgram) asServer(t *testing.T, b *bench) {
	out := new(daemon.Log)
	ended := make(chan func(), 1)
	go func() {
		r, err := b.try(p.command(b, "")+" & server=$!; sleep 3; echo it listens; wait $server || [ "+p.name+" = rping ]", limit, out)
		ended <- func() { judge(t, p.name, r, err, out) }
	}()
	defer func() { (<-ended)() }() // the guest runs one command at a time
	testenv.Wait(t, limit, p.name+" to listen", func() bool { return strings.Contains(out.String(), "it listens") })
	s := b.ours(t, limit, p.options(), b.tap.PeerIP.String())
	s.ended(t)
	if said := s.said.String(); !strings.Contains(said, p.asked) {
		t.Errorf("%s:\n%sours:\n%s", p.name, out, said)
	}
}

// managedRefused: each side reports that no program listens at the other.
func (b *bench) managedRefused(t *testing.T) {
	s := b.ours(t, limit, "-peer rping -timeout 60s", b.tap.PeerIP.String())
	err := <-s.status
	s.status <- err
	if err == nil || !strings.Contains(s.said.String(), "check that a program listens") {
		t.Errorf("ours: %v\n%s", err, s.said)
	}
}
