package flows

import (
	"testing"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

func TestCaptureEveryPacket(t *testing.T) {
	for _, layout := range layouts {
		t.Run(layout, func(t *testing.T) {
			l := newLab(t, testenv.PairOptions{NoAddresses: true})
			l.everyPacket(t, l.defaults(layout))
		})
	}
}

// everyPacket starts a flow and sends packets: they are in its files as they were sent, which every reader reads without a
// word, and the ledger adds up. It returns the flow's status before its end.
func (l *lab) everyPacket(t *testing.T, text string) status.Flow {
	t.Helper()
	f := l.start(t, text, Options{}).Flows()[0]
	frames := testenv.Stream(&l.A, &l.B, 5000, 0, 5000, 1000)
	if sent := l.feed(t, f, frames, 20000); sent != len(frames) {
		t.Fatalf("sent %d of %d", sent, len(frames))
	}
	s := await(t, f, "all packets durable", func(s status.Flow) bool { return s.Durable.Packets == uint64(len(frames)) })
	balanced(t, s, uint64(len(frames)))
	stopped(t, f)
	captures.Readable(t, l.files(t)...)
	samePackets(t, "the file", captures.Packets(t, l.files(t)...), frames)
	return s
}
