package attach

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// twoReaders are a machine with the writer of a channel, and two with readers. Each is at two links.
type twoReaders struct {
	*testing.T
	ends [2][]*testenv.End // by link, then by machine: the first is that of the writer
	to   [2]*machines      // the writer's machine, and that of a reader
}

// newTwoReaders starts machines whose channel has the policy wait. rate is that of each link from the writer's machine, in
// bits per second; 0: no limit.
func newTwoReaders(t *testing.T, mode string, slots int, rate uint64) *twoReaders {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	l := &twoReaders{T: t}
	l.ends[0] = testenv.NewSwitch(t, 3, testenv.PairOptions{})
	l.ends[1] = testenv.SecondSwitch(t, l.ends[0], testenv.PairOptions{})
	dir, peers := t.TempDir(), []string(nil)
	for i := range l.to {
		m := &machines{T: t, Pair: &testenv.Pair{A: *l.ends[0][0], B: *l.ends[0][1+i]}, dirs: [2]string{dir, t.TempDir()}}
		m.texts[1] = fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
workers: [{name: main, wait: sleep}]
attach:
  socket: %s
  programs: [{name: reader, user: "%d"}]
  channels: [{name: book, readers: [{program: reader, policy: wait}], slots: %d, slot: 128}]
flows:
  - {name: in, from: {rdma: %q, listen: %q, paths: [{rdma: %q, listen: %q}]}, to: {channel: book}}
`, m.socket(1), os.Getuid(), slots, l.device(0, 1+i), l.at(0, i), l.device(1, 1+i), l.at(1, i))
		m.start(1)
		peers = append(peers, fmt.Sprintf("{name: r%d, address: %q, policy: wait, paths: [{rdma: %q, address: %q}], path_mode: %s}", i+1, l.at(0, i), l.device(1, 0), l.at(1, i), mode))
		l.to[i] = m
	}
	for _, ends := range l.ends {
		if rate > 0 {
			ends[0].ShapeFrom(t, rate)
		}
	}
	l.to[0].texts[0] = fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
workers: [{name: main, wait: sleep}]
attach:
  socket: %s
  programs: [{name: writer, user: "%d"}]
  channels: [{name: book, writer: writer, slots: %d, slot: 128}]
flows:
  - {name: out, from: {channel: book}, to: {rdma: %q, peers: [%s]}}
`, l.to[0].socket(0), os.Getuid(), slots, l.device(0, 0), strings.Join(peers, ", "))
	l.to[0].start(0)
	l.to[0].run(0, "0")
	l.to[1].daemons[0], l.to[1].programs[0] = l.to[0].daemons[0], l.to[0].programs[0]
	for _, m := range l.to {
		m.run(1)
	}
	return l
}

// device returns the RDMA device of a machine at a link.
func (l *twoReaders) device(link, machine int) string {
	return "roce:" + l.ends[link][machine].Ifname
}

// at returns where a reader's machine is over a link.
func (l *twoReaders) at(link, reader int) string {
	return fmt.Sprintf("%s:7471", l.ends[link][1+reader].IP)
}

// peers returns what the writer's daemon says of its peers when they are connected over links, one for each peer.
func (l *twoReaders) peers(links ...int) (all []status.Peer) {
	l.Helper()
	l.to[0].daemons[0].Until(l.T, fmt.Sprint("the peers to be connected over the links ", links), func(s *status.Daemon) bool {
		if len(s.Flows) == 0 || s.Flows[0].Sends == nil || len(s.Flows[0].Sends.Peers) != len(links) {
			return false
		}
		all = s.Flows[0].Sends.Peers
		for i, p := range all {
			at := slices.IndexFunc(p.Paths, func(p status.Path) bool { return p.Device == l.device(links[i], 0) })
			if at < 0 || p.Paths[at].State != "connected" {
				return false
			}
		}
		return true
	})
	return all
}

// progress waits until both readers have got messages that are written from now on.
func (l *twoReaders) progress(what string, messages uint64) {
	l.Helper()
	for _, m := range l.to {
		m.progress(what, messages)
	}
}

// lost returns what the readers have lost, and the senders to them.
func (l *twoReaders) lost() string {
	l.Helper()
	s, err := l.to[0].daemons[0].Status()
	testenv.Must(l, err)
	text := ""
	for i, m := range l.to {
		text += fmt.Sprintln(keptIn(m.file(1)).lost, s.Flows[0].Sends.Peers[i].Dropped)
	}
	return text
}

func (l *twoReaders) end() {
	l.to[0].kill(0)
	l.to[0].kill(1)
	l.to[1].kill(1)
	l.to[0].daemons[0].Terminate(l.T)
	for _, m := range l.to {
		m.daemons[1].Terminate(l.T)
	}
}

// TestRemoteChannelActive: with active paths the two peers of a channel get it over different links. When one fails under
// load, both use the other one, and they spread again when it is well. Readers get each message once and in order:
// readChannel checks that.
func TestRemoteChannelActive(t *testing.T) {
	l := newTwoReaders(t, "active", 256, 0)
	l.peers(0, 1)
	l.progress("over both links", 2000)
	before := l.lost()
	for link := range 2 {
		end := l.ends[link][0]
		mend := end.Lose(t, testenv.FromEnd, 0)
		end.Lose(t, testenv.ToEnd, 0)
		p := l.peers(1-link, 1-link)[link].Paths[0] // the link that this peer prefers
		if p.Device != l.device(link, 0) || p.Address != l.at(link, link) || p.State == "connected" || p.Failures == 0 || p.Left.IsZero() {
			t.Errorf("after the cut of link %d: %+v", link, p)
		}
		l.progress("over the other link", 2000)
		mend()
		l.peers(0, 1)
		l.progress("over both links again", 2000)
	}
	for i, p := range l.peers(0, 1) {
		if p.PathMode != "active" || p.Paths[0].Messages == 0 || p.Paths[1].Messages == 0 {
			t.Errorf("peer %d: %+v", i+1, p)
		}
	}
	if now := l.lost(); now != before {
		t.Errorf("the changes of the paths cost messages: before\n%s, and now\n%s", before, now)
	}
	l.end()
}

// TestRemoteChannelActiveRate: over two links of the same rate, a channel with two peers for which the writer waits is at
// least 1.7 times as fast with active paths as with standby.
func TestRemoteChannelActiveRate(t *testing.T) {
	testenv.Long(t, "the rate of a link needs seconds")
	best := map[string]float64{}
	for range 5 { // the machine may be busy
		for _, mode := range []string{"standby", "active"} {
			t.Run(mode, func(t *testing.T) { best[mode] = max(best[mode], channelRate(t, mode)) })
		}
		one, two := best["standby"], best["active"]
		t.Logf("%.0f messages a second over one link, %.0f over two: %.2f", one, two, two/one)
		if t.Failed() || two >= 1.7*one {
			return
		}
	}
	t.Error("two links are not 1.7 times as fast as one")
}

// channelRate returns how many messages a second both readers get, if a link carries four megabits.
func channelRate(t *testing.T, mode string) float64 {
	l := newTwoReaders(t, mode, 256, 4_000_000)
	links := map[string][]int{"standby": {0, 0}, "active": {0, 1}}[mode]
	l.peers(links...)
	l.progress("at first", 1000)
	lost, least := l.lost(), func() uint64 { return min(keptIn(l.to[0].file(1)).last, keptIn(l.to[1].file(1)).last) }
	const count = 10_000
	from, now, began := least(), uint64(0), time.Now()
	testenv.Wait(t, 2*time.Minute, "more messages", func() bool { now = least(); return now >= from+count })
	took := time.Since(began)
	if after := l.lost(); after != lost {
		t.Errorf("messages were lost: before\n%s, and now\n%s", lost, after)
	}
	t.Logf("%d messages in %v", now-from, took)
	l.peers(links...)
	l.end()
	return float64(now-from) / took.Seconds()
}
