package pcapng

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestCardClock: an interface whose times come from a card's clock has a description that standard
// readers show and that this package recognises. ReadTimes returns no times for its file.
func TestCardClock(t *testing.T) {
	const words = "Times are of the clock of eth0 (/dev/ptp0) as it was."
	plain := Interface{Name: "eth0", Description: "eth0 queue 0", LinkType: LinkTypeEthernet}
	card := plain
	card.CardClock, card.Comment = words, "of the user's"
	for _, ifs := range [][]Interface{{plain, card}, {plain, plain}} {
		s := &segment{align: 512, id: SegmentID{1}, next: 1}
		var err error
		s.file, err = AppendSegmentHead(nil, testSection, ifs, Segment{ID: s.id, Align: s.align, FirstPacket: s.next})
		testenv.Must(t, err)
		first, second := testPacket(1, 60), testPacket(2, 60)
		first.iface, second.iface, second.ns = 0, 1, 1_000_000_000
		s.add(packedLayout, 0, first, second)
		head, err := ReadHead(bytes.NewReader(s.file), int64(len(s.file)))
		several := ifs[1].CardClock != ""
		if err != nil || head.severalClocks() != several {
			t.Errorf("several clocks: %v, %v", head.severalClocks(), err)
		}
		for i, want := range ifs {
			if got := head.Interface(i); got != want {
				t.Errorf("interface %d is %+v, not %+v", i, got, want)
			}
		}
		if got := times(t, s.file); (got.First == 0) != several || got.Segment != s.id {
			t.Errorf("several clocks: %v; times %+v", several, got)
		}
		if got, err := LatestTime(bytes.NewReader(s.file), int64(len(s.file))); err != nil || (got == 0) != several {
			t.Errorf("several clocks: %v; latest %d, %v", several, got, err)
		}
		path := filepath.Join(t.TempDir(), "file.pcapng")
		testenv.Must(t, os.WriteFile(path, s.file, 0o600))
		checkTools(t, path, 2)
		checkPackets(t, path, []packet{first, second})
		if said := strings.Contains(runTool(t, []string{"capinfos", path}), words); said != several {
			t.Errorf("capinfos says which clock: %v", said)
		}
	}
}
