package flows

import (
	"maps"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
)

// reloads is the history of reloads, for the status. Any goroutine may use it.
type reloads struct {
	mu     sync.Mutex
	status status.Config
}

func newReloads() *reloads {
	now := time.Now()
	r := &reloads{status: status.Config{Generation: 1, Loaded: now, Succeeded: now, Reloads: make(map[status.Outcome]uint64)}}
	for _, o := range status.Outcomes {
		r.status.Reloads[o] = 0
	}
	return r
}

func (r *reloads) begin(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Since = &now
}

// busy counts a reload that was refused since another was under way.
func (r *reloads) busy() status.Reload {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Reloads[status.Busy]++
	return status.Reload{Outcome: status.Busy, Generation: r.status.Generation, At: time.Now(), Error: ErrReloading.Error()}
}

// end records how a reload ended, and returns that with the generation.
func (r *reloads) end(s status.Reload) status.Reload {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Reloads[s.Outcome]++
	if s.Outcome.Good() {
		r.status.Succeeded = s.At
	}
	if s.Outcome == status.Applied {
		r.status.Loaded = s.At
		r.status.Generation++
	}
	s.Generation = r.status.Generation
	r.status.Since, r.status.Last = nil, &s
	return s
}

func (r *reloads) read() status.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	s.Reloads = maps.Clone(s.Reloads)
	return s
}
