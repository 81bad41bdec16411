package segment

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/unifiedd/unifiedd/flows/journal"
)

// TestManifestRests: while nothing changes, nobody looks at a log's manifest. What changes is written soon, and flushed
// once nothing has changed for a second. Room alone makes the manager reserve more positions.
func TestManifestRests(t *testing.T) {
	c := newManagerLab(t)
	synctest.Test(t, func(t *testing.T) {
		var received, durable, looks atomic.Uint64
		m := NewManifest(journal.End{Next: 1}, journal.Run{Number: 1, Start: 1}, received.Load, func() uint64 { looks.Add(1); return durable.Load() })
		s, err := Open(Config{To: c.to, Head: labHead, Log: slog.New(slog.NewTextHandler(&c.log, nil)), Manifest: m})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		begun := looks.Load()
		time.Sleep(time.Hour)
		if n := looks.Load() - begun; n > 0 {
			t.Errorf("the manifest was looked at %d times in an hour without a message", n)
		}
		received.Store(10)
		durable.Store(10)
		m.Changed()
		time.Sleep(manifestWriteInterval + manifestInterval)
		synctest.Wait()
		if next := m.keeper.Now().Next; next != 11 || m.flushed {
			t.Errorf("the manifest says that the log is durable before %d, and is flushed (%v)", next, m.flushed)
		}
		time.Sleep(manifestFlushIdle + manifestInterval)
		synctest.Wait()
		if !m.flushed {
			t.Error("the manifest is not flushed after a second in which nothing has changed")
		}
		const far = minReserve/2 + 100
		received.Store(far)
		before := m.Room(far)
		time.Sleep(2 * manifestInterval)
		if room := m.Room(far); before != minReserve-far || room < minReserve {
			t.Errorf("%d positions are reserved, %d were", room, before)
		}
		begun = looks.Load()
		for range 10_000 { // a busy log
			durable.Add(1)
			m.Changed()
			time.Sleep(time.Millisecond)
		}
		if n := looks.Load() - begun; n > 3*1000 {
			t.Errorf("the manifest was looked at %d times in 10 s", n)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if c.log.Len() > 0 {
		t.Error(c.log.String())
	}
}
