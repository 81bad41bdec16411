package pcapng

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// finishedFile is a segment of a head and one closing batch, as the writer leaves it.
func finishedFile(t *testing.T, change func(*Batch)) (*os.File, int64) {
	t.Helper()
	id := SegmentID{1, 2, 3}
	raw, err := AppendSegmentHead(nil, Section{}, []Interface{{Name: "eth0", LinkType: LinkTypeEthernet}}, Segment{ID: id, Align: 512})
	testenv.Must(t, err)
	end := uint64(len(raw))
	b := Batch{Segment: id, Align: 512, Sequence: 1, Offset: end, Length: 512, Durable: end}
	change(&b)
	last := make([]byte, 512)
	PutBatchHeader(last, &b)
	raw = append(raw, last...)
	path := filepath.Join(t.TempDir(), "segment")
	testenv.Must(t, os.WriteFile(path, raw, 0o600))
	f, err := os.Open(path)
	testenv.Must(t, err)
	t.Cleanup(func() { f.Close() })
	return f, int64(len(raw))
}

func TestFinished(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Batch)
		want   bool
	}{
		"closed":          {func(*Batch) {}, true},
		"not yet durable": {func(b *Batch) { b.Durable-- }, false},
		"has packets":     {func(b *Batch) { b.Packets = 1 }, false},
		"other segment":   {func(b *Batch) { b.Segment[0]++ }, false},
		"elsewhere":       {func(b *Batch) { b.Offset += 512; b.Durable += 512 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			f, size := finishedFile(t, c.change)
			if got, err := Finished(f, size); got != c.want || err != nil {
				t.Errorf("Finished: %v, %v; want %v", got, err, c.want)
			}
			if got, err := Finished(f, size-512); got || err != nil {
				t.Errorf("without its last batch: %v, %v; want false", got, err)
			}
		})
	}
}

func TestFinishedForeign(t *testing.T) {
	path := filepath.Join(t.TempDir(), "foreign")
	testenv.Must(t, os.WriteFile(path, make([]byte, 4096), 0o600))
	f, err := os.Open(path)
	testenv.Must(t, err)
	defer f.Close()
	if got, err := Finished(f, 4096); got || err != nil {
		t.Errorf("Finished: %v, %v; want false", got, err)
	}
}
