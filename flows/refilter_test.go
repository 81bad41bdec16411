package flows

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/source/afxdp"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
)

// The test has four streams and two filters. Each filter selects one of the first two streams, both select
// the third, and none selects the last.
const (
	firstPort = 6000
	bothPort  = firstPort + 2
	streams   = 4
)

var swapFilters = [2]string{"udp dst port 6000 or udp dst port 6002", "udp dst port 6001 or udp dst port 6002"}

// change is a change of filters: how many packets were judged before it began, and how many were sent when it
// had ended.
type change struct{ judged, sent uint64 }

// TestRefilter changes the filter of a running flow again and again, while packets arrive. One wire with one
// queue keeps them in order, so the filter in force decides on each packet. The old filter is in force up to
// a packet between those judged when the reload began and those sent when it had ended. From there on the new
// one is in force.
func TestRefilter(t *testing.T) {
	newLab(t, testenv.PairOptions{NoAddresses: true}).refilters(t, "", int(setting.Number(t, "UNIFIEDD_SWAPS", 30)))
}

// refilters is TestRefilter for a flow with more settings.
func (l *lab) refilters(t *testing.T, more string, swaps int) {
	t.Helper()
	text := func(i int) string {
		return strings.Replace(l.captures(), "ring: 1024", fmt.Sprintf("ring: 1024, filter: %q%s", swapFilters[i%2], more), 1)
	}
	f := l.start(t, text(0), Options{}).Flows()[0]
	since := f.Status().Since
	s := l.flood(t, f)
	testenv.Wait(t, 10*time.Second, "packets", func() bool { return f.Status().Packets > 100 })
	changes := []change{{}}
	for i := 1; i <= swaps; i++ {
		judged := f.Status().Offered
		r := l.reloaded(t, text(i))
		changes = append(changes, change{judged, s.sent.Load() + 1})
		if len(r.Plan.Filters) != 1 || len(r.Plan.Changed) != 0 || f.Status().Filter != swapFilters[i%2] {
			t.Fatalf("swap %d: %+v", i, r.Plan)
		}
		testenv.Wait(t, 10*time.Second, "packets for the new filter", func() bool { return s.sent.Load() > changes[i].sent+20 })
	}
	sent := s.stop(t)
	if l.daemon.Flows()[0] != f || !f.Status().Since.Equal(since) {
		t.Error("the flow began anew")
	}
	testenv.Must(t, f.Stop())
	balanced(t, f.Status(), sent)
	taken := make([]bool, sent)
	for _, frame := range captures.Packets(t, l.files(t)...) {
		n, ok := testenv.Sequence(frame)
		if !ok || n >= sent || taken[n] || !testenv.Intact(frame) {
			t.Fatalf("a packet that was not sent, or is there twice: number %d", n)
		}
		taken[n] = true
	}
	judgedAsInForce(t, changes, taken)
	t.Logf("%d swaps, %d packets, passed on %v", swaps, sent, f.Status().Passed)
}

// judgedAsInForce checks each packet against the filter in force. It finds for each change the packet where
// it took effect.
func judgedAsInForce(t *testing.T, changes []change, taken []bool) {
	t.Helper()
	changes = append(changes, change{math.MaxUint64, math.MaxUint64})
	now := 0 // the filter in force
	for n, was := range taken {
		stream := n % streams
		want := func(filter int) bool { return stream == bothPort-firstPort || stream == filter%2 }
		for was != want(now) && now+1 < len(changes)-1 && uint64(n) >= changes[now+1].judged {
			now++
		}
		for uint64(n) >= changes[now+1].sent {
			now++
		}
		if was != want(now) {
			t.Fatalf("packet %d of stream %d: taken %v, with filter %d in force (next change %+v)", n, stream, was, now, changes[now+1])
		}
	}
}

// flood is a goroutine that sends numbered packets, in turn to each of the streams.
type flood struct {
	sent  atomic.Uint64
	quit  atomic.Bool
	ended chan error
}

// flood sends packets to a flow, no further ahead than its rings hold; at a steady rate if there is none.
func (l *lab) flood(t *testing.T, f *Flow) *flood {
	t.Helper()
	s := &flood{ended: make(chan error, 1)}
	sender := testenv.NewSender(t, &l.A)
	go func() { s.ended <- s.run(sender, f, &l.A, &l.B) }()
	t.Cleanup(func() { s.quit.Store(true) })
	return s
}

func (s *flood) run(sender *testenv.Sender, f *Flow, from, to *testenv.End) error {
	for n := uint64(0); !s.quit.Load(); {
		sent, err := sender.Send(testenv.UDP(from, to, firstPort+uint16(n%streams), n, 100))
		if err != nil {
			return err
		}
		if !sent {
			continue
		}
		n++
		s.sent.Store(n)
		if n%16 == 0 {
			time.Sleep(time.Millisecond)
		}
		for f != nil && n%64 == 0 && !s.quit.Load() {
			if st := f.Status(); st.Offered-st.Waiting+500 >= n {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// stop ends the flood, and returns how many packets were sent.
func (s *flood) stop(t *testing.T) uint64 {
	t.Helper()
	s.quit.Store(true)
	testenv.Must(t, <-s.ended)
	return s.sent.Load()
}

// TestRefilterBeside: a reload changes filters together with other settings. If it is rolled back, the flow
// has its old filter again. A flow that was stopped has the new filter when it starts.
func TestRefilterBeside(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	l.sides(t, "one")
	with := func(filter string, others ...[3]string) string {
		return strings.Replace(l.captures(others...), "ring: 1024", "ring: 1024, filter: "+filter, 1)
	}
	f := l.start(t, with("udp"), Options{}).Flows()[0]
	since := f.Status().Since
	s, err := l.reload(t, with("tcp", [3]string{"a", "nowhere"}))
	if err == nil || s.Outcome != status.RolledBack || f.Status().Filter != "udp" || !f.Status().Since.Equal(since) {
		t.Errorf("%v, %+v, %+v", err, s, f.Status())
	}
	l.feed(t, f, testenv.Stream(&l.A, &l.B, 5000, 0, 10, 100), 0)
	await(t, f, "the old filter's packets", func(s status.Flow) bool { return s.Packets == 10 })
	l.reloaded(t, with("tcp", [3]string{"a", "one"}))
	if l.daemon.Flows()[0] != f || f.Status().Filter != "tcp" || !f.Status().Since.Equal(since) {
		t.Errorf("%+v", f.Status())
	}
	testenv.Must(t, f.Stop())
	l.reloaded(t, with("udp", [3]string{"a", "one"}))
	f = l.daemon.Flows()[0]
	if st := f.Status(); st.State != status.Stopped || st.Filter != "udp" {
		t.Errorf("%+v", st)
	}
}

// TestRefilterKeepsTheHost: a reload does not remove a filter if that would cut off the host.
func TestRefilterKeepsTheHost(t *testing.T) {
	l := newLab(t, testenv.PairOptions{})
	l.B.Run(t, "ip", "route", "add", "default", "via", l.A.IP.String())
	f := l.start(t, strings.Replace(l.captures(), "ring: 1024", "ring: 1024, filter: udp", 1), Options{}).Flows()[0]
	s, err := l.reload(t, l.captures())
	if !errors.Is(err, afxdp.ErrTakeOver) || s.Outcome != status.RolledBack || f.Status().Filter != "udp" || !f.Status().State.Up() {
		t.Errorf("%v, %+v", err, s)
	}
}
