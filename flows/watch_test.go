package flows

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// quietFlow is a flow that does nothing, and counts who looks at it.
type quietFlow struct {
	pipeline.Flow
	looks, checks atomic.Int64
	checked       map[time.Time]bool // when; of all flows
	done          atomic.Bool
}

func (q *quietFlow) Done() bool                       { q.looks.Add(1); return q.done.Load() }
func (q *quietFlow) Traffic() (packets, bytes uint64) { return 0, 0 }
func (q *quietFlow) Observe(*status.Flow) error       { return nil }
func (q *quietFlow) Check(now time.Time) (waits, ends error) {
	q.checks.Add(1)
	if q.checked != nil {
		q.checked[now] = true
	}
	return nil, nil
}

// TestIdleFlowsShareOneTimer: a hundred flows to which nothing happens are looked at once a second, all at the same
// time. Each learns at once of its error, of its end and that it is to stop.
func TestIdleFlowsShareOneTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const number, span = 100, 5 * time.Minute
		s := newSeconds()
		type end struct {
			state status.State
			err   error
		}
		ends := make(chan end, number)
		var runs []*pipeline.Run
		var all []*quietFlow
		quit := make(chan struct{})
		for range number {
			q := &quietFlow{}
			r := &pipeline.Run{Flow: q, Err: pipeline.NewFirstError()}
			runs, all = append(runs, r), append(all, q)
			go func() {
				state, err := (&Flow{seconds: s}).observe(r, newOutset(), quit)
				ends <- end{state, err}
			}()
			time.Sleep(7 * time.Millisecond) // they begin at different times
		}
		time.Sleep(2 * time.Second)
		begun := time.Now()
		for i, q := range all {
			q.looks.Store(0)
			q.checks.Store(0)
			if i == 0 || i == number-1 {
				q.checked = map[time.Time]bool{}
			}
		}
		time.Sleep(span)
		synctest.Wait()
		seconds := int64(time.Since(begun) / time.Second)
		for i, q := range all {
			if n := q.checks.Load(); n < seconds-1 || n > seconds+1 || q.looks.Load() > n+1 {
				t.Fatalf("flow %d was checked %d times and looked at %d times in %d s", i, n, q.looks.Load(), seconds)
			}
		}
		for at := range all[0].checked {
			if !all[number-1].checked[at] {
				t.Errorf("the first flow was checked at %v, and the last one was not", at)
				break
			}
		}

		broken, at := errors.New("broken"), time.Now()
		runs[0].Err.Note(broken)
		if e := <-ends; e.state != status.Failed || !errors.Is(e.err, broken) || time.Since(at) > 0 {
			t.Errorf("a flow with an error ends as %v (%v) after %v", e.state, e.err, time.Since(at))
		}
		all[1].done.Store(true)
		runs[1].Err.Tell()
		if e := <-ends; e.state != status.Done || e.err != nil || time.Since(at) > 0 {
			t.Errorf("a flow that is done ends as %v (%v) after %v", e.state, e.err, time.Since(at))
		}
		close(quit)
		for range number - 2 {
			if e := <-ends; e.state != status.Stopped || e.err != nil || time.Since(at) > 0 {
				t.Fatalf("a flow that is stopped ends as %v (%v) after %v", e.state, e.err, time.Since(at))
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestDoneIsTold: a flow that is done ends though nobody looks at it: its worker says so.
func TestDoneIsTold(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	const count = 300
	d := l.open(t, "{region: {size: 96MiB}, flows: [{name: f, from: {generate: 64, rate: 1000}, to: {discard: true}}]}", Options{Count: count})
	f := d.Flows()[0]
	f.seconds = &seconds{second: make(chan struct{})} // that never ends
	l.begin(t, d.Start)
	s := await(t, f, "the end", func(s status.Flow) bool { return s.State != status.Running })
	if s.State != status.Done || s.Packets != count {
		t.Errorf("the flow ends as %v with %d packets of %d", s.State, s.Packets, count)
	}
}
