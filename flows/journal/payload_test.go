package journal

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/protocol"
)

// badPayload is a log with verify: false, as a crash left it: record 4 has a payload that does not fit its checksum, 5 to 7 are other clients', and all
// were acknowledged as durable.
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

// TestBadPayload: it is one record that is lost, and its session goes on behind it.
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

// TestBadPayloadBeingWritten: while a flow holds the file, a payload that does not fit may not be there yet.
func TestBadPayloadBeingWritten(t *testing.T) {
	prefix := badPayload(t, newRun(1, 1))
	f, err := os.Open(segmentPath(prefix, 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	expect(t, readFrom(t, prefix, 0), 1, 3)
	f.Close()
	if all := readFrom(t, prefix, 0); len(all.positions) != 6 {
		t.Errorf("read: %v, %v", all.positions, all.gaps)
	}
}

// TestBadPayloadOfVerified: where payloads were checked when they came, a crash tore it, and nothing behind it was acknowledged.
func TestBadPayloadOfVerified(t *testing.T) {
	prefix := badPayload(t, newVerifiedRun(1, 1))
	if end := tail(t, prefix); end.Next != 4 || end.Lost != 0 {
		t.Errorf("%+v", end)
	}
	expect(t, readFrom(t, prefix, 0), 1, 3)
}
