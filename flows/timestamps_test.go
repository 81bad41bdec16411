package flows

import (
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// TestTimestamps asks for the card's clock. Some drivers offer it, but have no stamps for these packets. All
// packets are in the interface of the system's clock, and the file also has the interface of the card's clock
// if the driver offers it. The status says which clock the times are from.
func TestTimestamps(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	d := l.start(t, strings.Replace(l.defaults("packed"), "ring: 2048", "ring: 2048, timestamps: prefer", 1), Options{})
	const n = 30
	testenv.SendRaw(t, &l.A, testenv.Stream(&l.A, &l.B, 9, 0, n, 500), testenv.SendOptions{})
	s := await(t, d.Flows()[0], "the packets", func(s status.Flow) bool { return s.Durable.Packets >= n })
	if s.CardClock == (s.NoCardClock != "") || s.PTPClock != nil || s.CardStamped != 0 {
		t.Errorf("card's clock: %v, because %q; PTP clock %v; %d packets", s.CardClock, s.NoCardClock, s.PTPClock, s.CardStamped)
	}
	testenv.Must(t, d.Flows()[0].Stop())
	out := l.B.Run(t, testenv.Tool(t, "capinfos"), l.files(t)[0])
	for _, words := range []string{"queue 0, the card's clock", "as it was, not converted"} {
		if strings.Contains(out, words) != s.CardClock {
			t.Errorf("capinfos says %q: %v\n%s", words, !s.CardClock, out)
		}
	}
	if got := len(captures.Records(t, l.files(t)...)); got != n {
		t.Errorf("%d packets are in the files", got)
	}
}
