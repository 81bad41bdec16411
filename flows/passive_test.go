package flows

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// passive is a configuration of a flow with a packet socket. more are further settings of its source.
func (l *lab) passive(more string) string {
	return fmt.Sprintf(`
region: {size: 32MiB}
workers: [{name: main, wait: poll}]
flows:
  - name: cap
    from: {interface: %s, engine: packet, buffer: 16MiB%s}
    to: {file: %s/cap, segment: {size: 32MiB}, flush: 50ms, durable: 200ms}
`, l.B.Ifname, more, l.dir)
}

// TestPassiveEveryPacket: a packet socket's blocks are on the disk as they were sent, and the ledger adds up.
func TestPassiveEveryPacket(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	d := l.start(t, l.passive(""), Options{})
	frames := testenv.Stream(&l.A, &l.B, 5000, 0, 5000, 1000)
	f := d.Flows()[0]
	if sent := l.feed(t, f, frames, 20000); sent != len(frames) {
		t.Fatalf("sent %d of %d", sent, len(frames))
	}
	s := await(t, f, "all packets durable", func(s status.Flow) bool { return s.Durable.Packets == uint64(len(frames)) })
	if s.Offered != uint64(len(frames)) || s.Waiting != 0 || s.Engine != "packet" || s.Buffer == nil {
		t.Errorf("%+v", s)
	}
	if err := f.Stop(); err != nil {
		t.Fatal(err)
	}
	got := captures.Packets(t, l.files(t)...)
	if len(got) != len(frames) {
		t.Fatalf("the file has %d packets of %d", len(got), len(frames))
	}
	for i := range got {
		if !bytes.Equal(got[i], frames[i]) {
			t.Fatalf("packet %d differs", i)
		}
	}
}
