package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// statePort is where peers read a state.
const statePort = 7490

// stateKeys is the number of keys of the state.
const stateKeys = 16

// desk starts a daemon as desk that has the state book, a flow of updates to it, and a state that others cannot find.
func (r *rig) desk(host int, ca *authority.Authority) *daemon.Daemon {
	r.t.Helper()
	device := "roce:" + r.hosts[host].Ifname
	d := daemon.Launch(r.t, program, r.hosts[host], r.t.TempDir(), r.head("desk", fmt.Sprintf(`tls: %s
attach:
  states: [{name: book, keys: 64, rdma: %q, listen: ":%d", clients: 2}, {name: hidden, words: 4, rdma: %[2]q, listen: ":0"}]
flows:
  - {name: book, from: {rdma: %[2]q, listen: ":%[4]d", message: 1KiB, clients: 4, window: 64}, to: {state: book}}
`, secret(r.t, ca, "desk", r.hosts[host]), device, statePort, flowPort)))
	d.Running(r.t)
	return d
}

// TestStateNames: a program that reads a state over RDMA names it, finds it in etcd, follows it to another machine when its
// own one is killed, and back, and says what a name that leads nowhere lacks. Whoever updates the state names its flow.
func TestStateNames(t *testing.T) {
	testenv.Long(t, "TestMove has a flow that is followed")
	testenv.Leaks(t)
	r := newRig(t, 5)
	ca := authority.New(t)
	first := r.desk(2, ca)
	r.registered(first)
	says(t, first, []string{"state of keys", fmt.Sprintf("%v:%d", r.hosts[2].IP, statePort)}, "cluster", "status")
	says(t, first, []string{"state hidden", "others do not find it: its port is not fixed"}, "status", "-o", "wide")
	says(t, first, []string{`"states"`, `"keys"`}, "cluster", "status", "--json")
	run := func(host int, command ...string) *daemon.Client {
		e := r.hosts[host]
		cert, key := issue(t, ca, "program", e)
		return daemon.StartClient(t, flowTest, e, append(command, "-device", "roce:"+e.Ifname, "-ordinary", "-receive-ring", "512",
			"-tls", strings.Join([]string{cert, key, ca.File()}, ","), "-etcd", r.etcd.URL)...)
	}
	update := func() {
		t.Helper()
		run(4, "append", "-peer", "desk/book", "-keys", fmt.Sprint(stateKeys), "-size", "32", "-count", "200", "-timeout", "1m").Await(t, testenv.Within(time.Minute))
	}
	read := func(peer string, count int, timeout string) *daemon.Client {
		return run(1, "get", "-peer", peer, "-keys", fmt.Sprint(stateKeys), "-count", fmt.Sprint(count), "-rate", "500", "-timeout", timeout)
	}
	readers := func(d *daemon.Daemon) {
		t.Helper()
		d.Until(t, "the reader", func(s *status.Daemon) bool { return s.States[0].Remote.Readers == 1 })
	}
	update()
	reader := read("desk/book", 10000, "4m")
	readers(first)
	first.Kill()
	begun := time.Now()
	second := r.desk(3, ca)
	readers(second)
	t.Logf("the reader is at the other machine %v after the first one was killed; the lease is %v", time.Since(begun).Round(10*time.Millisecond), r.lease)
	if reader.Over() {
		t.Fatalf("the reader has ended: %s", reader.Kill())
	}
	update()
	second.Terminate(t)
	third := r.desk(2, ca)
	readers(third)
	update()
	reader.Await(t, testenv.Within(time.Minute))
	if out := reader.Out.String(); !strings.Contains(out, "the state was followed 2 times") {
		t.Errorf("the reader says %s", out)
	}
	for peer, want := range map[string]string{"desk/other": "daemon desk has no state other", "nobody/book": "no daemon is registered as nobody"} {
		c := read(peer, 1, "3s")
		testenv.Wait(t, testenv.Within(30*time.Second), "the program to end", c.Over)
		if out := c.Kill(); !strings.Contains(out, want) || !strings.Contains(out, "read state "+peer) {
			t.Errorf("of %s it says %q, not %q", peer, out, want)
		}
	}
	third.Terminate(t)
}
