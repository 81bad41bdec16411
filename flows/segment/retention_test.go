package segment

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// finalName is the name of segment n of the lab.
func finalName(n int) string { return fmt.Sprintf("md-20260102T030405Z-%06d.pcapng", n) }

// names returns the names of the segments, oldest first.
func (c *managerLab) names(t *testing.T) (all []string) {
	t.Helper()
	for name := range c.list(t) {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// TestRestartsDeleteNothing: starts and ends without a packet delete nothing that was recorded, and leave no segment without
// packets behind, whether the run before ended, was killed when it had begun a segment, or is of a release that counted
// empty segments.
func TestRestartsDeleteNothing(t *testing.T) {
	for _, keep := range []config.Keep{{Count: 3}, {Bytes: 5 << 20}, {Age: time.Hour}} {
		c := newManagerLab(t)
		c.to.Segment.Keep = keep
		var want []string
		for n := 1; n <= 3; n++ {
			want = append(want, finalName(n))
			c.put(t, finalName(n), labSegment(t, 2))
		}
		for round := range 5 {
			if round%2 == 1 { // as a crash leaves it right after it got its name
				c.put(t, finalName(10+round), labSegment(t, 0))
			}
			s, err := Open(Config{To: c.to, Head: labHead, Log: c.logger()})
			testenv.Must(t, err)
			if round == 2 { // a segment that was begun, and whose first batch failed
				var seg *Segment
				testenv.Wait(t, 5e9, "a segment", func() bool { seg = s.Acquire(time.Now()); return seg != nil })
				testenv.Wait(t, 5e9, "its name", seg.NameDurable)
				seg.Damaged = true
				s.Retire(seg)
			}
			testenv.Check(t, s.Close())
		}
		if got := c.names(t); !slices.Equal(got, want) {
			t.Errorf("keep %v: there are %v\n%s", keep, got, &c.log)
		}
		if strings.Count(c.log.String(), "a segment without packets is removed") != 2 {
			t.Errorf("it does not say what it removed:\n%s", &c.log)
		}
	}
}

// TestKeepLimits: each limit deletes the oldest segments and no others, each deletion of an earlier run's segment is
// logged with what was in it, and the prepared segment is part of the size.
func TestKeepLimits(t *testing.T) {
	old := time.Now().Add(-2 * time.Hour)
	for _, one := range []struct {
		keep config.Keep
		left int // of ten segments of 4 KiB
		why  string
	}{
		{config.Keep{}, 10, ""},
		{config.Keep{Count: 4}, 3, "value=4"}, // and the one that the new run begins
		{config.Keep{Bytes: 2<<20 + 30<<10}, 7, "value=2078KiB"},
		{config.Keep{Age: time.Hour}, 5, "value=1h0m0s"},
		{config.Keep{Count: 9, Bytes: 64 << 20, Age: time.Hour}, 5, ""},
		{config.Keep{Count: 9, Bytes: 2<<20 + 30<<10, Age: 24 * time.Hour}, 7, ""},
	} {
		c := newManagerLab(t)
		for n := 1; n <= 10; n++ {
			c.put(t, finalName(n), labSegment(t, 2))
		}
		testenv.Must(t, c.open(t)) // completes them
		for n := 1; n <= 10; n++ {
			ended := time.Now()
			if n <= 5 {
				ended = old
			}
			testenv.Must(t, os.Chtimes(filepath.Join(c.dir, finalName(n)), ended, ended))
		}
		info, err := os.Stat(filepath.Join(c.dir, finalName(1)))
		testenv.Must(t, err)
		if info.Size() > 12<<10 {
			t.Fatalf("a segment has %d bytes", info.Size())
		}
		c.log.Reset()
		c.to.Segment.Keep = one.keep
		s, seg := c.started(t)
		testenv.Wait(t, 5e9, "the next to be prepared", func() bool { all, _ := filepath.Glob(c.dir + "/.*.next"); return len(all) == 1 })
		s.Retire(seg)
		testenv.Check(t, s.Close())
		got := c.names(t)
		var want []string
		for n := 10 - one.left + 1; n <= 10; n++ {
			want = append(want, finalName(n))
		}
		if got = slices.DeleteFunc(got, func(n string) bool { return strings.HasPrefix(n, ".") || strings.HasSuffix(n, "-000011.pcapng") }); !slices.Equal(got, want) {
			t.Errorf("keep %v left %v, not %v", one.keep, got, want)
		}
		if said := c.log.String(); strings.Count(said, "an old segment is removed") != 10-one.left || one.left < 10 && !strings.Contains(said, "packets=6") || !strings.Contains(said, one.why) {
			t.Errorf("keep %v: it says\n%s", one.keep, said)
		}
	}
}

// TestKeepOfLog: a log keeps its last segment with records, however old or large it is.
func TestKeepOfLog(t *testing.T) {
	s := &Manager{to: config.To{Acknowledge: config.AcknowledgeDurable, Segment: config.Segment{Keep: config.Keep{Bytes: 1, Age: 1}}}}
	all := []complete{{bytes: 10}, {bytes: 10}, {bytes: 10, empty: true}}
	if first := s.firstKept(all, open{}, 10); first != 1 {
		t.Errorf("the first that stays is %d", first)
	}
	s.to.Acknowledge = ""
	if first := s.firstKept(all, open{}, 10); first != 2 {
		t.Errorf("of packets the first that stays is %d", first)
	}
}

// TestDamagedIsNotEmpty: a segment whose first batch is damaged counts as one with packets, and stays.
func TestDamagedIsNotEmpty(t *testing.T) {
	c := newManagerLab(t)
	c.put(t, finalName(1), labSegment(t, 3))
	testenv.Must(t, c.open(t))
	path := filepath.Join(c.dir, finalName(1))
	b, err := os.ReadFile(path)
	testenv.Must(t, err)
	head, err := labHead(pcapng.Segment{ID: pcapng.SegmentID{7}, Align: 512})
	testenv.Must(t, err)
	b[len(head)+20] ^= 1
	c.put(t, finalName(1), b)
	testenv.Must(t, c.open(t))
	if got := c.names(t); !slices.Equal(got, []string{finalName(1)}) {
		t.Errorf("there are %v\n%s", got, &c.log)
	}
}

// TestMissingDirectory: a directory that does not exist is refused, with the remedies, unless create is set.
func TestMissingDirectory(t *testing.T) {
	c := newManagerLab(t)
	c.to.File = c.dir + "/disk/deep/md"
	if err := c.open(t); err == nil || !strings.Contains(err.Error(), "to.create: true") || !strings.Contains(err.Error(), "mount the disk") {
		t.Errorf("it says %v", err)
	}
	if got := c.names(t); len(got) != 0 {
		t.Errorf("it made %v", got)
	}
	c.to.Create = true
	testenv.Must(t, c.open(t))
	if info, err := os.Stat(c.dir + "/disk/deep"); err != nil || info.Mode().Perm()&^0o750 != 0 {
		t.Errorf("%v: %v", info, err)
	}
}

// TestDefaultRoomRemovesNothing: for the room that stays free by default nothing is removed; the flow waits.
func TestDefaultRoomRemovesNothing(t *testing.T) {
	c := newManagerLab(t)
	c.dir = testenv.Ext4(t, 64<<20)
	c.to.File, c.to.KeepFree = c.dir+"/md", config.DefaultRoom
	c.put(t, finalName(1), labSegment(t, 2))
	testenv.Must(t, c.open(t))
	s, err := Open(Config{To: c.to, Head: labHead, Log: c.logger()})
	testenv.Must(t, err)
	defer s.Close()
	above, err := s.space.measure()
	testenv.Must(t, err)
	c.put(t, "other", make([]byte, above-(1<<20)))
	if err := s.reclaim(1 << 20); err == nil || !strings.Contains(err.Error(), "by default") || !strings.Contains(err.Error(), "5%") {
		t.Errorf("it says %v", err)
	}
	if _, err := os.Stat(filepath.Join(c.dir, finalName(1))); err != nil || s.removed.keepFree.Load() > 0 {
		t.Errorf("the segment is gone: %v", err)
	}
}
