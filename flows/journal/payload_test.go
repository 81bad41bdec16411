package journal

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// badPayload writes a log with verify: false, as a crash leaves it. The payload of record 4 does
// not match its checksum, and records 5 to 7 belong to other clients. The flow acknowledged all of
// them as durable.
func badPayload(t *testing.T, r *run) string {
	t.Helper()
	prefix := filepath.Join(t.TempDir(), "wal")
	m := r.file(t)
	r.batch(m, 3, 0)
	durable := m.here()
	r.batch(m, 4, durable)
	m.poke(1)
	m.write(t, segmentPath(prefix, 1))
	return prefix
}

// TestBadPayload: a client's bad payload loses only its own record, and its session continues after
// it.
func TestBadPayload(t *testing.T) {
	for number := range uint64(2) { // both layouts
		prefix := badPayload(t, newRun(number, 1))
		end := tail(t, prefix)
		if end.Next != 8 || end.Lost != 1 || len(end.Gaps) != 1 || end.Gaps[0].Position != 4 || end.Gaps[0].Err != error(protocol.BadPayload) || end.Sessions.Last(2).Sequence != 7 {
			t.Errorf("the log ends at %d, %d lost: %v; %v", end.Next, end.Lost, end.Gaps, end.Sessions.all())
		}
		if report := verify(t, prefix); report.Next != 8 || report.Lost != 1 || report.Records != 6 || report.Intact() {
			t.Errorf("verified: %+v", report)
		}
		all := readFrom(t, prefix, 0)
		if len(all.positions) != 6 || len(all.gaps) != 1 {
			t.Errorf("read: %v, %v", all.positions, all.gaps)
		}
	}
}

// TestBadPayloadBeingWritten: while a flow holds the lock of the file, a bad payload may not be
// completely written yet. Readers wait for it.
func TestBadPayloadBeingWritten(t *testing.T) {
	prefix := badPayload(t, newRun(1, 1))
	f, err := os.Open(segmentPath(prefix, 1))
	testenv.Must(t, err)
	testenv.Must(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	expect(t, readFrom(t, prefix, 0), 1, 3)
	f.Close()
	if all := readFrom(t, prefix, 0); len(all.positions) != 6 {
		t.Errorf("read: %v, %v", all.positions, all.gaps)
	}
}

// TestBadPayloadOfVerified: if the run checked payloads on receipt, a bad payload was torn by a
// crash. The log ends before it.
func TestBadPayloadOfVerified(t *testing.T) {
	prefix := badPayload(t, newVerifiedRun(1, 1))
	if end := tail(t, prefix); end.Next != 4 || end.Lost != 0 {
		t.Errorf("%+v", end)
	}
	expect(t, readFrom(t, prefix, 0), 1, 3)
}
