package privsep

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSayIfSlow: a wait of half a second has a line, and a shorter one has none.
func TestSayIfSlow(t *testing.T) {
	for wait, want := range map[time.Duration]string{silence - time.Millisecond: "", silence + time.Millisecond: "it goes on\n"} {
		synctest.Test(t, func(t *testing.T) {
			var said said
			enough := sayIfSlow(&said, silence, "it goes on")
			time.Sleep(wait)
			enough()
			time.Sleep(time.Minute)
			if got := said.String(); got != want {
				t.Errorf("after %v it says %q", wait, got)
			}
		})
	}
}

type said struct {
	mu sync.Mutex
	strings.Builder
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Builder.Write(b)
}
