package flows

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// feeds is a sender of multicast packets and a daemon, each at a port of a bridge that passes packets on to members
// only.
type feeds struct {
	*lab
	sender *testenv.End
	sent   atomic.Uint64 // datagrams to each group
}

var (
	feed4, late4 = netip.MustParseAddr("239.1.2.3"), netip.MustParseAddr("239.1.2.4")
	feed6        = netip.MustParseAddr("ff15::1:2:3")
)

// newFeeds makes the bridge, and sends a datagram to every group each 10 ms.
func newFeeds(t *testing.T) *feeds {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	testenv.HugePages(t, 100<<20)
	ends := testenv.NewSwitch(t, 2, testenv.PairOptions{IPv6: true})
	l := &feeds{lab: &lab{Pair: &testenv.Pair{A: *ends[0], B: *ends[1], MTU: 1500, Queues: 1}, dir: testenv.DiskDir(t)}, sender: ends[0]}
	ends[0].Query(t)
	var fds [2]int
	l.sender.Do(t, func() {
		for i, family := range []int{unix.AF_INET, unix.AF_INET6} {
			fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err == nil && family == unix.AF_INET {
				err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(l.sender.Index)})
			} else if err == nil {
				err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, l.sender.Index)
			}
			testenv.Must(t, err)
			fds[i] = fd
		}
	})
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(10 * time.Millisecond); ; l.sent.Add(1) {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			for port, to := range []netip.Addr{feed4, late4} {
				_ = unix.Sendto(fds[0], make([]byte, 100), 0, &unix.SockaddrInet4{Port: 7000 + port, Addr: to.As4()})
			}
			_ = unix.Sendto(fds[1], make([]byte, 100), 0, &unix.SockaddrInet6{Port: 7002, Addr: feed6.As16()})
		}
	}()
	t.Cleanup(func() { close(quit); <-ended; _ = unix.Close(fds[0]); _ = unix.Close(fds[1]) })
	return l
}

// flow returns a configuration with one capture.
func (l *feeds) flow(from string) string {
	return fmt.Sprintf("region: {size: 96MiB}\nflows:\n  - name: cap\n    from: {interface: %s, %s}\n    to: {file: %s/cap, segment: {size: 4MiB}, flush: 50ms}\n", l.B.Ifname, from, l.dir)
}

// during returns how many packets a flow received, and how many datagrams went to each group, while some time passed.
func (l *feeds) during(f *Flow, span time.Duration) (received, sent uint64) {
	had, before := f.Status().Packets, l.sent.Load()
	time.Sleep(span)
	return f.Status().Packets - had, l.sent.Load() - before
}

// most checks that a flow has most of the packets of two groups, and with alone none of a third. On a busy machine some
// are still on their way.
func (l *feeds) most(t *testing.T, got, sent uint64, alone bool) {
	t.Helper()
	if got < sent/2 || alone && got > 2*sent+2*sent/3 {
		t.Errorf("of two groups with %d datagrams each the flow has %d packets", sent, got)
	}
}

// TestJoin: behind a switch with snooping, a flow receives the groups that it joins, with both engines, and for
// longer than the switch remembers members that do not answer. Without join it receives nothing. A reload changes
// the groups while the flow runs. When it stops, the host is no member. The short form has a filter of each engine.
func TestJoin(t *testing.T) {
	for name, engine := range map[string]string{
		"xdp":    `engine: xdp, filter: "udp portrange 7000-7002"`,
		"all":    "engine: xdp", // would take the queries, too
		"rules":  `engine: xdp, filter: [{name: feed, match: "udp portrange 7000-7002"}, {name: rest, action: drop}]`,
		"packet": `engine: packet, filter: "udp portrange 7000-7002"`,
	} {
		t.Run(name, func(t *testing.T) {
			if name == "all" || name == "rules" {
				testenv.Long(t, "a filter stands for rules, and for none")
			}
			newFeeds(t).joins(t, engine)
		})
	}
}

func (l *feeds) joins(t *testing.T, engine string) {
	alone := engine != "engine: xdp" // no other packets than those of the feeds
	f := l.start(t, l.flow(engine), Options{}).Flows()[0]
	if got, sent := l.during(f, time.Second); alone && got > 0 || got > 20 {
		t.Fatalf("without join the flow has %d packets of %d", got, sent)
	}
	since := f.Status().Since
	l.change(t, l.flow(engine+fmt.Sprintf(`, join: [%s, "%s"]`, feed4, feed6)))
	testenv.Wait(t, 5*time.Second, "packets", func() bool { return f.Status().Packets > 20 })
	for range 5 { // 7.5 s; the switch forgets after 3
		got, sent := l.during(f, 1500*time.Millisecond)
		l.most(t, got, sent, alone)
	}
	if s := f.Status(); len(s.Joined) != 2 || s.Joined[0] != (status.Joined{Group: feed4.String(), Interface: l.B.Ifname}) || !s.Since.Equal(since) {
		t.Errorf("it has joined %+v; it runs since %v, before %v", s.Joined, s.Since, since)
	}
	if rules := f.Status().Rules; !strings.Contains(engine, "packet") && (len(rules) < 2 || rules[0].Name != config.QueryRule || rules[0].Packets == 0) {
		t.Errorf("the rules are %+v, and none leaves queries to the host", rules)
	}
	l.change(t, l.flow(engine+fmt.Sprintf(`, join: [%s, %s, {group: "%s", source: "fd77::99"}]`, feed4, late4, feed6)))
	time.Sleep(time.Second)
	got, sent := l.during(f, 2*time.Second) // the third group is sent by another source only
	l.most(t, got, sent, alone)
	if !f.Status().Since.Equal(since) {
		t.Error("the flow began anew")
	}
	testenv.Must(t, f.Stop())
	l.B.Do(t, func() {
		if members := memberships(t); strings.Contains(members, "030201EF") || strings.Contains(members, "040201EF") {
			t.Errorf("after the flow the host is a member of:\n%s", members)
		}
	})
	if s := f.Status(); len(s.Joined) != 0 {
		t.Errorf("after the flow it has joined %+v", s.Joined)
	}
}

// memberships returns the kernel's list of groups of IPv4 in this namespace.
func memberships(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/thread-self/net/igmp")
	testenv.Must(t, err)
	return string(b)
}

// change reloads the daemon's configuration in end B's namespace. Only filters and groups may change.
func (l *feeds) change(t *testing.T, text string) {
	t.Helper()
	var r status.Reload
	var err error
	next := l.parsed(t, text)
	l.B.Do(t, func() { r, err = l.daemon.Reload(func(*config.Config) (*config.Config, error) { return next, nil }) })
	if err != nil || r.Outcome != status.Applied || len(r.Plan.Filters) != 1 || len(r.Plan.Changed) != 0 {
		t.Fatalf("reload: %v, %+v", err, r)
	}
}

// TestJoinRefused: a flow whose groups cannot be joined does not start and keeps nothing, and a reload to such
// groups changes nothing.
func TestJoinRefused(t *testing.T) {
	l := newFeeds(t)
	absent := l.flow(`filter: "udp port 7000", join: [{group: 239.1.2.3, interface: absent.7}]`)
	d := l.open(t, absent, Options{})
	var err error
	l.B.Do(t, func() { err = d.Start() })
	if err == nil || !strings.Contains(err.Error(), "ip link add link PARENT name absent.7 type vlan") {
		t.Fatalf("the flow starts: %v", err)
	}
	next := l.parsed(t, l.flow(`filter: "udp port 7000", join: [239.1.2.3]`))
	l.B.Do(t, func() { _, err = d.Reload(func(*config.Config) (*config.Config, error) { return next, nil }) })
	testenv.Must(t, err)
	f := d.Flows()[0]
	await(t, f, "packets", func(s status.Flow) bool { return s.Packets > 20 })
	worse := l.parsed(t, absent)
	l.B.Do(t, func() { _, err = d.Reload(func(*config.Config) (*config.Config, error) { return worse, nil }) })
	if err == nil || !strings.Contains(err.Error(), "absent.7") {
		t.Fatalf("a reload to an interface that is not there: %v", err)
	}
	if got, sent := l.during(f, time.Second); got < sent-10 || f.Status().State != status.Running {
		t.Errorf("afterwards the flow is %s, and has %d of %d packets", f.Status().State, got, sent)
	}
}
