package attach

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// startLogged runs a daemon with a state that follows a log. With a writer the daemon also keeps the log.
func startLogged(t *testing.T, dir, log string, writer bool) *flows.Daemon {
	t.Helper()
	text := fmt.Sprintf(`
region: {size: 16MiB, pages: ordinary}
attach:
  socket: %s
  programs:
    - {name: writer, user: "%d", out: 2MiB}
    - {name: reader, user: "%[2]d"}
  states: [{name: book, objects: 64, room: 336, readers: [reader]}]
flows:
  - {name: books, from: {file: %[3]s}, to: {state: book}}
`, filepath.Join(dir, "attach.sock"), os.Getuid(), log)
	if writer {
		text += fmt.Sprintf("  - {name: updates, from: {attach: writer, message: 512}, to: {file: %s, acknowledge: durable, segment: {size: 1MiB}}}\n", log)
	}
	return startText(t, text)
}

func openFlow(t *testing.T, d *flows.Daemon, name string) *flows.Flow {
	t.Helper()
	f, err := d.Flow(name)
	testenv.Must(t, err)
	return f
}

// object makes an update of an object, whose payload is a number.
func object(number uint64) []byte {
	return attached.AppendPutObject(nil, number%64, fmt.Appendf(nil, "update %d %s", number, strings.Repeat(".", 300)))
}

// updateAll submits updates with these numbers, and waits until all are done.
func updateAll(t *testing.T, s *attached.Sender, first, last uint64) {
	t.Helper()
	var done [64]attached.Receipt
	for next, left := first, last-first+1; left > 0; {
		if next <= last {
			if f, err := s.Claim(); err == nil {
				if _, err := s.Commit(f, copy(f.Data, object(next))); err != nil {
					t.Fatal(err)
				}
				next++
				continue
			}
		}
		n, err := s.Poll(done[:])
		testenv.Must(t, err)
		if left -= uint64(n); n == 0 {
			testenv.Must(t, s.Wait(t.Context(), time.Second))
		}
	}
}

// reaches waits until a state has a position, and checks the objects that were written last.
func reaches(t *testing.T, book *attached.State, position uint64) {
	t.Helper()
	testenv.Wait(t, testenv.Within(10*time.Second), fmt.Sprintf("position %d", position), func() bool {
		at, _, err := book.Position()
		return err == nil && at >= position
	})
	if at, _, err := book.Position(); err != nil || at != position {
		t.Fatalf("the state is at %d, and not at %d: %v", at, position, err)
	}
	buffer := make([]byte, 336)
	for i := position; i > 0 && i+64 > position; i-- {
		n, _, err := book.Get(i%64, buffer)
		if want := fmt.Sprintf("update %d ", i); err != nil || !strings.HasPrefix(string(buffer[:n]), want) {
			t.Fatalf("object %d is %q, and not %q: %v", i%64, buffer[:n], want, err)
		}
	}
}

// TestStateOfLog: a state has what the log has, at the log's positions: while it is written, after the flow was stopped
// and started, and after a restart of the daemon, with which the state begins empty.
func TestStateOfLog(t *testing.T) {
	testenv.Leaks(t)
	dir, log := t.TempDir(), filepath.Join(testenv.DiskDir(t), "updates")
	d := startLogged(t, dir, log, true)
	k, kr := attach(t, dir, "writer", 7), attach(t, dir, "reader", 0)
	updates, err := k.Send("updates", 0)
	testenv.Must(t, err)
	book, err := kr.State("book")
	testenv.Must(t, err)
	defer book.Close()
	updateAll(t, updates, 1, 200)
	reaches(t, book, 200)
	testenv.Must(t, openFlow(t, d, "books").Stop())
	updateAll(t, updates, 201, 300)
	testenv.Must(t, openFlow(t, d, "books").Start())
	reaches(t, book, 300)
	s := openFlow(t, d, "books").Status()
	if s.Kind != "storage-state" || s.Packets != 100 || s.Dropped["missing"] != 0 || s.CopiedBytes["log"] == 0 || s.CopiedBytes["state"] == 0 || s.Updates.Position != 300 {
		t.Errorf("the flow: %+v, %+v", s, s.Updates)
	}
	_ = updates.Close()
	testenv.Must(t, d.Close())
	startLogged(t, dir, log, true)
	testenv.Must(t, book.Resume(t.Context()))
	reaches(t, book, 300)
}

// TestStateOfDamagedLog: records that the log does not have any more are counted, and positions go on behind them. A log
// that does not exist yet is waited for.
func TestStateOfDamagedLog(t *testing.T) {
	testenv.Long(t, "TestStateOfLog has a log that is whole")
	testenv.Leaks(t)
	dir, log := t.TempDir(), filepath.Join(testenv.DiskDir(t), "updates")
	d := startLogged(t, dir, log, true)
	k := attach(t, dir, "writer", 7)
	updates, err := k.Send("updates", 0)
	testenv.Must(t, err)
	const records = 8000
	updateAll(t, updates, 1, records)
	_ = updates.Close()
	testenv.Must(t, d.Close())
	segments, err := filepath.Glob(log + "*.pcapng")
	if err != nil || len(segments) < 3 {
		t.Fatalf("segments %v: %v", segments, err)
	}
	slices.Sort(segments)
	away := filepath.Join(dir, "away")
	testenv.Must(t, os.Rename(segments[1], away))
	d = startLogged(t, dir, log, false)
	book, err := attach(t, dir, "reader", 0).State("book")
	testenv.Must(t, err)
	defer book.Close()
	testenv.Wait(t, testenv.Within(10*time.Second), "all records but those of a segment", func() bool {
		s := openFlow(t, d, "books").Status()
		return s.Dropped["missing"] > 0 && s.Packets+s.Dropped["missing"] == records && s.Updates.Position == records
	})
	reaches(t, book, records)
	_ = book.Close()
	testenv.Must(t, d.Close())
	d = startLogged(t, dir, log+"-other", false)
	testenv.Wait(t, testenv.Within(10*time.Second), "the flow to wait", func() bool {
		s := openFlow(t, d, "books").Status()
		return s.State == status.Waiting && strings.Contains(s.Error, "no segment begins with it")
	})
	if _, err := os.Stat(log + "-other"); !errors.Is(err, os.ErrNotExist) {
		t.Error("the reader has made a file:", err)
	}
}
