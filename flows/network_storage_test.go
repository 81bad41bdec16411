package flows

import (
	"bytes"
	"testing"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

func TestCaptureEveryPacket(t *testing.T) {
	for _, layout := range layouts {
		t.Run(layout, func(t *testing.T) {
			l := newLab(t, testenv.PairOptions{NoAddresses: true})
			d := l.start(t, l.defaults(layout), Options{})
			frames := testenv.Stream(&l.A, &l.B, 5000, 0, 5000, 1000)
			f := d.Flows()[0]
			if sent := l.feed(t, f, frames, 20000); sent != len(frames) {
				t.Fatalf("sent %d of %d", sent, len(frames))
			}
			s := await(t, f, "all packets durable", func(s status.Flow) bool {
				return s.Durable.Packets+s.Dropped["lost_ring_full"]+s.Dropped["lost_no_frames"] == uint64(len(frames))
			})
			t.Logf("%v stalls %d", s.Dropped, s.Stalls)
			t.Logf("%+v", f.Status())
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
		})
	}
}
