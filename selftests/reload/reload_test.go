package reload

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// few is the number of reloads in the short form: each kind once, and the smallest configuration a
// second time.
const few = 7

// The number of messages for each reload, and the rates. Packets are sent for longer than messages,
// and a reload waits for its share of the messages.
const (
	step        = 1000
	messageRate = 1000 // a second
	packetRate  = 800
)

// clientLimit is how long a client may take; after the last reload, if the daemon is reloaded under it.
const clientLimit = 5 * time.Minute

// TestReloads: reloads by command and by signal, some with mistakes and some that cannot be
// applied, do not affect other flows. Flows are added, changed and removed. A capture, a feed and a
// log stay, and lose nothing of steady traffic. A log that changes each time loses nothing either:
// its client continues its session. At the end the daemon uses no more resources than before.
func TestReloads(t *testing.T) {
	testenv.Long(t, "flows and cmd/unifiedd test each kind of reload")
	count := setting.Number(t, "UNIFIEDD_RELOADS", few)
	r := newRig(t, (count+2)*step)
	var before, after usage
	for i := range count {
		r.reload(i)
		if i == 4 { // the first one that is like the last
			before = r.usage()
		}
	}
	together := r.together
	r.apply(0) // which is like that of reload 4
	after = r.usageAgain(before)
	r.finish()
	t.Logf("%d reloads, %d of them under all of the traffic: %v; in use after 5 reloads and after all: %+v, %+v", count+1, together, r.outcomes, before, after)
	if together < count/4 {
		t.Errorf("%d reloads of %d happened under all of the traffic: it was over too early", together, count)
	}
}

// rig has a daemon that is reloaded, and the programs at the other ends of its flows.
type rig struct {
	t *testing.T
	*testenv.Pair
	*daemon.Daemon
	dir      string
	total    uint64         // messages, and packets, of each client
	client   *daemon.Client // of the flows that stay, and of the log that changes
	packets  []*packets
	since    map[string]time.Time // when flows that stay began
	applied  uint64
	outcomes map[status.Outcome]uint64 // the expected counters
	together uint64                    // reloads while every client was active
	flush    uint64                    // of the log that changes
}

// newRig starts the daemon and the traffic.
func newRig(t *testing.T, total uint64) *rig {
	t.Helper()
	testenv.Root(t)
	testenv.HugePages(t, 130<<20)
	r := &rig{t: t, Pair: testenv.NewPair(t, testenv.PairOptions{}), dir: testenv.DiskDir(t), total: total, since: map[string]time.Time{}, outcomes: map[status.Outcome]uint64{}}
	for _, w := range append(slices.Clone(spares), captured, fed) {
		w.join(t, r.Pair)
	}
	r.flowTest("make", "-file", r.file("image"), "-size", "1048576").Await(t, clientLimit)
	r.client = r.talk()
	r.Daemon = daemon.Launch(t, program, &r.B, r.dir, r.text(0, ""))
	r.Running(t)
	r.Until(t, "the feed's peer", func(s *status.Daemon) bool {
		return s.Flows[2].Sends.Peers[0].Credit > 0 && s.Flows[2].State == status.Running
	})
	for _, f := range r.status().Flows[:stay] {
		r.since[f.Name] = f.Since
	}
	r.packets = []*packets{r.send(captured, "capture"), r.send(fed, "feed")}
	return r
}

// talk starts the program that appends to both logs and receives from the feed.
func (r *rig) talk() *daemon.Client {
	r.t.Helper()
	messages := []string{"-count", fmt.Sprint(r.total), "-rate", fmt.Sprint(messageRate), "-size", "700", "-timeout", "55m"}
	all := append([]string{"append", "-device", "roce:" + r.A.Ifname, "-ordinary", "-memory", fmt.Sprint(48 << 20), "-receive-ring", "512", "-to", r.at(7471), "-flow", "wal"}, messages...)
	all = append(append(all, "+", "append", "-to", r.at(7472), "-flow", "changing"), messages...)
	all = append(all, "+", "receive", "-listen", fmt.Sprintf("%s:7481", r.A.IP), "-flow", "feed", "-packets", "-count", fmt.Sprint(r.total), "-timeout", "55m")
	return r.flowTest(all...)
}

func (r *rig) at(port int) string { return fmt.Sprintf("%s:%d", r.B.IP, port) }

func (r *rig) file(name string) string { return filepath.Join(r.dir, name) }

// stay is the number of flows that stay, the first ones of the configuration.
const stay = 3

// text returns configuration i: the flows that stay, a log that differs each time, and the flows of
// guests. rest follows them.
func (r *rig) text(i uint64, rest string) string {
	text := fmt.Sprintf(`
region: {size: 128MiB, extents: 24}
flows:
  - name: capture
    from: {interface: cap, filter: udp dst port 5000, ring: 2048}
    to: {file: %[1]s/capture, segment: {size: 16MiB}, flush: 50ms, durable: 200ms}
  - name: wal
    from: {rdma: "roce:%[2]s", listen: "%[3]s", clients: 2}
    to: {file: %[1]s/wal, layout: slot, segment: {size: 16MiB}}
  - name: feed
    from: {interface: fed, filter: udp dst port 5000, ring: 2048}
    to: {rdma: "roce:%[2]s", peers: [{name: sink, address: "%[4]s:7481", flow: feed}]}
  - name: changing
    from: {rdma: "roce:%[2]s", listen: "%[5]s", clients: 2}
    to: {file: %[1]s/changing, layout: slot, flush: %[6]dus, segment: {size: 16MiB}}
`, r.dir, r.B.Ifname, r.at(7471), r.A.IP, r.at(7472), r.flush%50)
	return text + r.guests(i) + rest
}

// guests returns the flows of configuration i that are added and removed. One uses interfaces,
// files and devices that another used before.
func (r *rig) guests(i uint64) string {
	capture := func(name, iface, file string) string {
		return fmt.Sprintf("  - {name: %s, from: {interface: %s, ring: 64}, to: {file: %s, segment: {size: 1MiB}}}\n", name, iface, r.file(file))
	}
	blocks := fmt.Sprintf("  - {name: blocks, from: {file: %s}, to: {rdma: \"roce:%s\", listen: %q, transfer: 4KiB, clients: 2}}\n", r.file("image"), r.B.Ifname, r.at(7473))
	other := fmt.Sprintf("  - {name: other, from: {rdma: \"roce:two\", listen: \":7474\", clients: 2}, to: {file: %s, layout: slot, segment: {size: 1MiB}}}\n", r.file("other"))
	switch i % 4 {
	case 1:
		return capture("guest", "one", "guest") + blocks
	case 2:
		return capture("guest", "two", "guest") + capture("second", "one", "second")
	case 3:
		return capture("second", "one", "guest") + other
	}
	return ""
}

// reload does reload i of the test, after the clients have sent their share.
func (r *rig) reload(i uint64) {
	r.t.Helper()
	r.Until(r.t, "clients to send", func(s *status.Daemon) bool { return s.Flows[1].Log.Acknowledged >= i*step })
	if !r.client.Over() && !slices.ContainsFunc(r.packets, (*packets).over) {
		r.together++
	}
	switch {
	case i%5 == 2:
		r.fails(i, status.Refused, "  - {name: bad, from: {interface: eth0, rng: 1}, to: {file: /c/bad}}\n")
	case i%7 == 5:
		r.fails(i, status.RolledBack, "  - {name: bad, from: {interface: nowhere}, to: {file: "+r.file("bad")+"}}\n")
	}
	r.apply(i)
}

// apply makes the daemon apply configuration i, alternately by command and by signal.
func (r *rig) apply(i uint64) {
	r.t.Helper()
	r.flush++
	r.Configure(r.t, r.text(i, ""))
	if i%2 == 0 {
		if said, err := r.Control("reload"); err != nil {
			r.t.Fatalf("reload %d: %v: %s\n%s", i, err, said, r.Log)
		}
	} else {
		before := attempts(r.status())
		r.Hangup(r.t)
		r.Until(r.t, "the reload", func(s *status.Daemon) bool { return attempts(*s) > before })
	}
	r.applied++
	r.outcomes[status.Applied]++
	r.check()
}

// attempts returns how many reloads have ended.
func attempts(s status.Daemon) (n uint64) {
	for _, m := range s.Config.Reloads {
		n += m
	}
	return n
}

// fails checks that the daemon refuses a configuration, or rolls it back.
func (r *rig) fails(i uint64, outcome status.Outcome, rest string) {
	r.t.Helper()
	r.flush++
	r.Configure(r.t, r.text(i, rest))
	said, err := r.Control("reload")
	if err == nil {
		r.t.Fatalf("reload %d succeeds: %s", i, said)
	}
	r.outcomes[outcome]++
	if s := r.check(); s.Config.Last.Outcome != outcome {
		r.t.Errorf("reload %d: %s, %+v", i, said, s.Config.Last)
	}
}

// check checks the daemon: its flows run, those that stay have not restarted, every frame has an
// owner, and the counters match.
func (r *rig) check() status.Daemon {
	r.t.Helper()
	s := r.status()
	for _, f := range s.Flows {
		began, stays := r.since[f.Name]
		if f.Name == "feed" && r.packets[1].over() {
			stays = false // its peer leaves when it has everything, and the flow waits for the peer
		}
		if !f.State.Up() || stays && !f.Since.Equal(began) {
			r.t.Fatalf("flow %s is %s since %v: %s\n%s\n%s", f.Name, f.State, f.Since, f.Error, r.client.Kill(), r.Log)
		}
	}
	frames := int64(0)
	for _, n := range s.Region.Owners {
		frames += n
	}
	if frames != s.Region.Frames {
		r.t.Errorf("the owners have %d of %d frames: %v", frames, s.Region.Frames, s.Region.Owners)
	}
	if s.Config.Generation != r.applied+1 {
		r.t.Errorf("generation %d after %d changes", s.Config.Generation, r.applied)
	}
	for _, o := range []status.Outcome{status.Applied, status.Refused, status.RolledBack, status.Broken} {
		if s.Config.Reloads[o] != r.outcomes[o] {
			r.t.Errorf("%s is counted %d times, not %d: %+v", o, s.Config.Reloads[o], r.outcomes[o], s.Config.Last)
		}
	}
	return s
}

func (r *rig) status() status.Daemon {
	r.t.Helper()
	s, err := r.Status()
	if err != nil {
		r.t.Fatalf("%v\n%s", err, r.Log)
	}
	return s
}

// finish waits for the clients, and finds all that they sent: in the ledgers, at the remote end,
// and on the disk.
func (r *rig) finish() {
	r.t.Helper()
	for _, p := range r.packets {
		<-p.ended
	}
	r.client.Await(r.t, clientLimit)
	s := r.Until(r.t, "everything to be durable", func(s *status.Daemon) bool { return s.Flows[0].Durable.Packets >= r.total })
	for _, f := range s.Flows[:stay] {
		lost := uint64(0)
		for _, n := range f.Dropped {
			lost += n
		}
		if f.Packets != r.total || lost > 0 {
			r.t.Errorf("flow %s took %d of %d, and dropped %v", f.Name, f.Packets, r.total, f.Dropped)
		}
	}
	if l := s.Flows[1].Log; l.First != 1 || l.Last != r.total || s.Flows[1].Receives.Connected != 1 {
		r.t.Errorf("the log that stays has positions %d to %d, and had %d connections", l.First, l.Last, s.Flows[1].Receives.Connected)
	}
	r.Terminate(r.t)
	all := fmt.Sprint(r.total)
	r.flowTest("packets", "-file", r.file("capture"), "-count", all).Await(r.t, clientLimit)
	r.flowTest("log", "-file", r.file("wal"), "-count", all).Await(r.t, clientLimit)
	r.flowTest("log", "-file", r.file("changing"), "-count", all).Await(r.t, clientLimit)
}
