package segment

import (
	"log/slog"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestPreallocationRests: nobody looks at a file that has space enough. It is extended when half of that is used.
func TestPreallocationRests(t *testing.T) {
	c := newManagerLab(t)
	c.to = config.To{File: c.dir + "/cap.pcapng", Exact: true, Layout: config.LayoutPacked}
	s, err := Open(Config{To: c.to, Head: labHead, Log: slog.New(slog.NewTextHandler(&c.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	var one *Segment
	testenv.Wait(t, 10*time.Second, "a segment", func() bool { one = s.Acquire(time.Now()); return one != nil })
	blocks := func() int64 {
		info, err := os.Stat(one.Path())
		if err != nil {
			return 0 // it is renamed now
		}
		return info.Sys().(*syscall.Stat_t).Blocks * 512
	}
	grows := func(to int64) {
		t.Helper()
		testenv.Wait(t, 10*time.Second, "more space", func() bool { return blocks() >= to })
	}
	head := one.Next
	grows(preallocation)
	time.Sleep(5 * scarceInterval)
	one.reached.Store(preallocation/2 + 1) // as Advance does, without a word
	time.Sleep(5 * scarceInterval)
	if n := blocks(); n >= 2*preallocation {
		t.Errorf("the file was looked at: it has %d bytes of space", n)
	}
	one.Next = preallocation/2 + 1
	one.Advance()
	grows(2 * preallocation)
	one.Next = head
	s.Retire(one)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
