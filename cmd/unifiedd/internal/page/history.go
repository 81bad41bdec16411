package page

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
)

// A history goes back for points times step.
const (
	points = 30
	step   = 10 * time.Second
)

// quietAfter is for how many steps nothing may come from an interface, which had packets before, without a finding.
const quietAfter = 18

// History has the rates of the last five minutes of all flows. It reads the status every ten seconds, also while nobody
// looks: who opens a page wants to know what was before. Any goroutine may use it.
type History struct {
	status func() status.Daemon
	stop   chan struct{}
	done   chan struct{}

	mu    sync.Mutex
	flows map[string]*past
}

// past is what a flow did.
type past struct {
	at, before       time.Time // of the last point, and of the one before
	packets          uint64    // at the last point
	lost, lostBefore uint64    // at the last point, and at the one before
	rates, losses    []uint64  // packets a second, and lost in all, of each point; the oldest first
}

// NewHistory returns the history of a daemon. Close ends it.
func NewHistory(daemon func() status.Daemon) *History {
	h := &History{status: daemon, stop: make(chan struct{}), done: make(chan struct{}), flows: map[string]*past{}}
	go h.run()
	return h
}

// Close ends the history. A nil History has none.
func (h *History) Close() {
	if h == nil {
		return
	}
	close(h.stop)
	<-h.done
}

// run reads the status every ten seconds, or less often if that took more than a hundredth of a processor.
func (h *History) run() {
	defer close(h.done)
	for wait := step; ; {
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-h.stop:
			t.Stop()
			return
		}
		begun := time.Now()
		s := h.status()
		h.add(&s, begun)
		wait = max(step, share*time.Since(begun))
	}
}

// add adds a point for each flow, and forgets flows that are not there any more.
func (h *History) add(s *status.Daemon, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[string]*past, len(s.Flows))
	for i := range s.Flows {
		f := &s.Flows[i]
		p := h.flows[f.Name]
		if p == nil {
			p = newPast(s, now)
		}
		p.add(f.Packets, f.LostInAll(), now)
		all[f.Name] = p
	}
	h.flows = all
}

// newPast returns the past of a flow that begins with the daemon, or came with a reload.
func newPast(s *status.Daemon, now time.Time) *past {
	begun := s.Started
	if now.Sub(begun) > 2*step {
		begun = now.Add(-step)
	}
	return &past{at: begun, before: begun}
}

func (p *past) add(packets, lost uint64, now time.Time) {
	if packets < p.packets || lost < p.lost { // the flow began anew
		p.packets, p.lost = 0, 0
	}
	p.rates = append(p.rates, uint64(math.Round(float64(packets-p.packets)/max(now.Sub(p.at).Seconds(), 1))))
	p.losses = append(p.losses, lost-p.lost)
	p.before, p.lostBefore = p.at, p.lost
	p.at, p.packets, p.lost = now, packets, lost
	if len(p.rates) > points {
		p.rates, p.losses = p.rates[1:], p.losses[1:]
	}
}

// fill adds to the documents of flows what they did before. A nil History adds what they lost in all.
func (h *History) fill(d *Document, s *status.Daemon) {
	if h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
	}
	for i := range s.Flows {
		f, v := &s.Flows[i], &d.Flows[i]
		lost := f.LostInAll()
		p := newPast(s, d.Time)
		if h != nil && h.flows[f.Name] != nil {
			p = h.flows[f.Name]
		}
		v.Rates, v.Losses = slices.Clone(p.rates), slices.Clone(p.losses)
		if v.Recent = lost; lost >= p.lost { // else the flow began anew
			v.Losing = float64(lost-p.lostBefore) / max(d.Time.Sub(p.before).Seconds(), 1)
			v.Recent -= p.lost
			for _, n := range p.losses {
				v.Recent += n
			}
		}
	}
}
