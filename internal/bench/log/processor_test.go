package log

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestSpent: spent finds the processor time that the test burns.
func TestSpent(t *testing.T) {
	before := spent(os.Getpid())
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
	}
	if got := spent(os.Getpid()) - before; got <= 0 || spent(-1) != 0 {
		t.Errorf("this process has spent %v", got)
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
