package attach

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// twoLinks are machines with two links between them. Each link is a switch of its own.
type twoLinks struct {
	*machines
	ends [2][]*testenv.End // by link, then by machine
}

// newTwoLinks starts machines whose channel has both links.
func newTwoLinks(t *testing.T, policy, mode string, slots int) *twoLinks {
	t.Helper()
	testenv.Root(t)
	l := &twoLinks{machines: &machines{T: t, dirs: [2]string{t.TempDir(), t.TempDir()}}}
	l.ends[0] = testenv.NewSwitch(t, 2, testenv.PairOptions{})
	l.ends[1] = testenv.SecondSwitch(t, l.ends[0], testenv.PairOptions{})
	l.Pair = &testenv.Pair{A: *l.ends[0][0], B: *l.ends[0][1]}
	l.texts[0] = fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
workers: [{name: main}]
attach:
  socket: %s
  programs: [{name: writer, user: "%d"}]
  channels: [{name: book, writer: writer, slots: %d, slot: 128}]
flows:
  - {name: out, from: {channel: book}, to: {rdma: %q, peers: [{name: b, address: %q, policy: %s, paths: [{rdma: %q, address: %q}], path_mode: %s}]}}
`, l.socket(0), os.Getuid(), slots, l.device(0, 0), l.at(0), policy, l.device(1, 0), l.at(1), mode)
	l.texts[1] = fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
workers: [{name: main}]
attach:
  socket: %s
  programs: [{name: reader, user: "%d"}]
  channels: [{name: book, readers: [{program: reader, policy: %s}], slots: %d, slot: 128}]
flows:
  - {name: in, from: {rdma: %q, listen: %q, paths: [{rdma: %q, listen: %q}]}, to: {channel: book}}
`, l.socket(1), os.Getuid(), policy, slots, l.device(0, 1), l.at(0), l.device(1, 1), l.at(1))
	l.start(1)
	l.start(0)
	return l
}

// device returns the RDMA device of a machine at a link.
func (l *twoLinks) device(link, machine int) string { return "roce:" + l.ends[link][machine].Ifname }

// at returns where the reader's machine is over a link.
func (l *twoLinks) at(link int) string { return fmt.Sprintf("%s:7471", l.ends[link][1].IP) }

// cut makes a link lose everything, and returns a function that ends that.
func (l *twoLinks) cut(link int) (mend func()) {
	l.Helper()
	mend = l.ends[link][1].Lose(l.T, testenv.FromEnd, 0)
	l.ends[link][1].Lose(l.T, testenv.ToEnd, 0)
	return mend
}

// peer returns what a status of the writer's daemon says of the peer.
func peer(s *status.Daemon) status.Peer {
	if len(s.Flows) == 0 || s.Flows[0].Sends == nil || len(s.Flows[0].Sends.Peers) == 0 || len(s.Flows[0].Sends.Peers[0].Paths) != 2 {
		return status.Peer{Paths: make([]status.Path, 2)}
	}
	return s.Flows[0].Sends.Peers[0]
}

// onPath waits until messages go over a path, and some have gone.
func (l *twoLinks) onPath(link int) status.Peer {
	l.Helper()
	from := ^uint64(0)
	s := l.daemons[0].Until(l.T, fmt.Sprint("messages over path ", link), func(s *status.Daemon) bool {
		p := peer(s).Paths[link]
		if p.State != "connected" {
			return false
		}
		from = min(from, p.Messages)
		return p.Messages > from
	})
	return peer(&s)
}

// arrived returns how many messages the reader's daemon has got over a path.
func (l *twoLinks) arrived(link int) uint64 {
	l.Helper()
	s, err := l.daemons[1].Status()
	if err != nil || len(s.Flows) == 0 || s.Flows[0].Arrives == nil || len(s.Flows[0].Arrives.Paths) != 2 {
		l.Fatalf("the reader's daemon has no paths: %v", err)
	}
	return s.Flows[0].Arrives.Paths[link].Messages
}

func (l *twoLinks) end() {
	l.kill(0)
	l.kill(1)
	l.daemons[0].Terminate(l.T)
	l.daemons[1].Terminate(l.T)
}

// TestRemoteChannelPaths: the link that a channel prefers is cut under load, and comes back. The channel goes on over the
// other one, and back. With active paths a single peer has the same. With the policy wait the reader gets every message once and in order: readChannel checks that. With
// drop_oldest the writer does not wait, and each gap is counted exactly.
func TestRemoteChannelPaths(t *testing.T) {
	for _, test := range []struct {
		policy, mode string
		slots        int
	}{{"wait", "standby", 16}, {"wait", "active", 256}, {"drop_oldest", "standby", 256}} {
		t.Run(test.policy+"-"+test.mode, func(t *testing.T) {
			if test.policy != "wait" || test.mode != "standby" {
				testenv.Long(t, "the first case has the same changes of links")
			}
			testenv.Leaks(t)
			l := newTwoLinks(t, test.policy, test.mode, test.slots)
			l.run(0, "0")
			l.run(1)
			l.onPath(0)
			l.progress("over the first link", 2000)
			lost, dropped := keptIn(l.file(1)).lost, l.lost()
			for turn := range uint64(2) {
				mend := l.cut(0)
				p := l.onPath(1)
				if one := p.Paths[0]; p.PathMode != test.mode || one.State == "connected" || one.Failures <= turn || one.Left.IsZero() || p.Paths[1].Connections <= turn {
					t.Errorf("after the cut: %+v", p)
				}
				l.progress("over the second link", 2000)
				mend()
				if p := l.onPath(0); p.Paths[0].Connections < turn+2 || p.Paths[1].State == "connected" {
					t.Errorf("after the link has come back: %+v", p)
				}
				l.progress("over the first link again", 2000)
			}
			s, now, c := keptIn(l.file(1)), l.lost(), l.channelOf(0)
			t.Logf("the reader: %+v, the sender has lost %v", s, now)
			if test.policy == "wait" && (s.lost != lost || fmt.Sprint(now) != fmt.Sprint(dropped)) {
				t.Errorf("the changes of the path cost the reader %d messages, and the sender had lost %v and now %v", s.lost-lost, dropped, now)
			}
			if test.policy == "drop_oldest" && c.Stalls > 0 {
				t.Errorf("the writer has waited %d times for a peer that costs it nothing", c.Stalls)
			}
			if l.arrived(0) == 0 || l.arrived(1) == 0 {
				t.Errorf("%d messages came over the first link, and %d over the second one", l.arrived(0), l.arrived(1))
			}
			l.end()
		})
	}
}

// TestRemoteChannelPathsSilent: the reader stands still, and the writer waits for it. Nothing is under way then that would be
// repeated. This alone costs no path. When the link is cut, it is left as soon as under load. The machine may be busy, so
// the shortest of some times counts.
func TestRemoteChannelPathsSilent(t *testing.T) {
	testenv.Long(t, "TestRemoteChannelPaths cuts links")
	testenv.Leaks(t)
	l := newTwoLinks(t, "wait", "standby", 64)
	l.run(0, "0")
	l.run(1)
	l.onPath(0)
	l.progress("before", 500)
	lost, dropped := keptIn(l.file(1)).lost, l.lost()
	var all []time.Duration
	for range 3 {
		before := l.onPath(0).Paths[0]
		l.signal(1, syscall.SIGSTOP)
		s := l.daemons[0].Until(t, "probes of the silent peer", func(s *status.Daemon) bool { return peer(s).Paths[0].Probes >= before.Probes+3 })
		if one := peer(&s).Paths[0]; one.Failures != before.Failures {
			t.Errorf("a reader that stands still costs the path: %+v", one)
		}
		mend := l.cut(0)
		began := time.Now()
		s = l.daemons[0].Until(t, "the first path to be left", func(s *status.Daemon) bool { return peer(s).Paths[0].Left.After(began) })
		all = append(all, peer(&s).Paths[0].Left.Sub(began))
		l.signal(1, syscall.SIGCONT)
		l.onPath(1)
		mend()
	}
	l.onPath(0)
	l.progress("after", 1000)
	if s, now := keptIn(l.file(1)), l.lost(); s.lost != lost || fmt.Sprint(now) != fmt.Sprint(dropped) {
		t.Errorf("the reader has lost %d messages more, and the sender had lost %v and now %v", s.lost-lost, dropped, now)
	}
	if t.Logf("the path was left after %v", all); slices.Min(all) > 1500*time.Millisecond {
		t.Errorf("the path was left after %v at best", slices.Min(all))
	}
	l.end()
}

// signal sends a signal to a program.
func (l *twoLinks) signal(i int, s syscall.Signal) {
	l.Helper()
	testenv.Must(l, l.programs[i].Process.Signal(s))
}

// TestRemoteChannelPathsAllCut: while no link works the writer waits for some seconds at most. What it writes over
// after that is a gap, which the reader counts exactly.
func TestRemoteChannelPathsAllCut(t *testing.T) {
	testenv.Long(t, "TestRemoteChannelPaths cuts links")
	testenv.Leaks(t)
	l := newTwoLinks(t, "wait", "standby", 256)
	l.run(0, "2000")
	l.run(1)
	l.onPath(0)
	l.progress("before", 500)
	mends := []func(){l.cut(0), l.cut(1)}
	from := keptIn(l.file(0)).last
	testenv.Wait(t, testenv.Within(60*time.Second), "the writer to go on without the peer", func() bool { return keptIn(l.file(0)).last > from+2000 })
	for _, mend := range mends {
		mend()
	}
	l.progress("after", 1000)
	if s, lost := keptIn(l.file(1)), l.lost(); s.lost == 0 || lost["gap"] == 0 {
		t.Errorf("the reader has lost %d messages, and the sender %v", s.lost, lost)
	}
	l.end()
}
