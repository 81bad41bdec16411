package journal

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestVerifyBesideWriter: a segment has room for more records until its writer completes it, which cuts
// the file. Verify may be at work then.
func TestVerifyBesideWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wal")
	r := newRun(2, 1)
	m := r.file(t)
	r.batch(m, 5, 0)
	m.write(t, segmentPath(path, 1))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	var writer sync.WaitGroup
	defer writer.Wait()
	defer cancel()
	cuts := 0
	writer.Go(func() {
		for ; ctx.Err() == nil; cuts++ {
			for _, size := range []int64{4 << 20, int64(len(m.raw))} {
				testenv.Check(t, os.Truncate(segmentPath(path, 1), size))
				time.Sleep(20 * time.Microsecond)
			}
		}
	})
	times := 0
	for ; ctx.Err() == nil; times++ {
		report, err := Verify(path)
		if err != nil || len(report.Segments) != 1 || report.Segments[0].Records != 5 {
			t.Fatalf("after %d times: %+v, %v", times, report, err)
		}
	}
	writer.Wait()
	t.Logf("verified %d times, cut %d times", times, cuts)
}
