package log

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestBusyTime: busyTime and spent find the processor time that the test burns.
func TestBusyTime(t *testing.T) {
	before, own := busyTimeOf(t), spent(os.Getpid())
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
	}
	if got := busyTimeOf(t) - before; got < 30*time.Millisecond { // others may have been busy then
		t.Errorf("the machine was busy for %v", got)
	}
	if got := spent(os.Getpid()) - own; got <= 0 || spent(-1) != 0 {
		t.Errorf("this process has spent %v", got)
	}
}

func busyTimeOf(t *testing.T) time.Duration {
	t.Helper()
	busy, err := busyTime()
	if err != nil {
		t.Fatal(err)
	}
	return busy
}

func TestIdleTime(t *testing.T) {
	if idle, err := idleTime("cpu  1 2 3 100 20 5 6 7 8 9\ncpu0 1"); idle != 1270*time.Millisecond || err != nil {
		t.Errorf("%v, %v", idle, err)
	}
	for _, bad := range []string{"", "cpu 1 2 3 4 5 6 7", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3 x 5 6 7 8"} {
		if idle, err := idleTime(bad); err == nil {
			t.Errorf("%q is %v", bad, idle)
		}
	}
}

// TestWatch: watch counts the time between the two words, and nothing if a word is missing.
func TestWatch(t *testing.T) {
	var s sample
	if err := s.watch(strings.NewReader("connected\nmeasuring\nmeasured\n"), []int{os.Getpid()}); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "measuring\n", "measured\n", "measured\nmeasuring\n"} {
		if err := s.watch(strings.NewReader(bad), nil); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestReadResult(t *testing.T) {
	var s sample
	if err := s.read([]byte(`{"messages": 10, "seconds": 0.5, "latency_ns": {"p50_ns": 20, "p99_ns": 30}, "position": 12}`)); err != nil || s.records != 10 || s.last != 12 || s.tail != 30 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{"", "{}", `{"messages": 10, "seconds": 0.5, "latency_ns": {"p50_ns": 20, "p99_ns": 3}}`} {
		if err := s.read([]byte(bad)); err == nil {
			t.Errorf("%q is %+v", bad, s)
		}
	}
}
