package flows

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// heldTrue compares what a flow says its segments hold with the packets in them.
func heldTrue(t *testing.T, h *status.Usage, all []testenv.Captured) {
	t.Helper()
	if h == nil || h.Oldest == nil || h.Newest == nil || len(all) == 0 {
		t.Errorf("held: %+v, and there are %d packets", h, len(all))
		return
	}
	if first, last := all[0].Time, all[len(all)-1].Time; h.Oldest.UnixNano() != first || h.Newest.UnixNano() != last {
		t.Errorf("held: from %v to %v, and the packets are from %d to %d", h.Oldest, h.Newest, first, last)
	}
}

// TestHeldFiles: the status says what the segments hold, also those of an earlier run, and also after another
// program has removed one.
func TestHeldFiles(t *testing.T) {
	c := newClinic(t, "", "file: DIR/ill, segment: {size: 1MiB}, flush: 20ms, durable: 50ms")
	names := func() []string { all, _ := filepath.Glob(c.dir + "/ill-*.pcapng"); return all }
	for run := range 2 {
		c.start(t)
		before := c.ill.Status().Held
		switch {
		case run == 0 && (before.Oldest != nil || before.Newest != nil):
			t.Errorf("before the first packet: %+v", before)
		case run == 1:
			heldTrue(t, before, captures.Records(t, names()...))
		}
		for range 2 {
			c.capture(t, 3000)
		}
		s := stopped(t, c.ill)
		files := names()
		heldTrue(t, s.Held, captures.Records(t, files...))
		if h := s.Held; h.Segments != uint64(len(files)) || len(files) < 3 || h.Bytes < sizes(t, files) || h.Ring != nil {
			t.Errorf("held: %+v, and there are %d files of %d bytes", h, len(files), sizes(t, files))
		}
		if run == 0 {
			testenv.Must(t, os.Remove(files[0]))
		}
	}
}

func sizes(t *testing.T, files []string) (sum uint64) {
	t.Helper()
	for _, name := range files {
		info, err := os.Stat(name)
		testenv.Must(t, err)
		sum += uint64(info.Size())
	}
	return sum
}
