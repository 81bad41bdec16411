package segment

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/index"
	"github.com/unifiedd/unifiedd/internal/newfile"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// indexes returns the names in the directory that are not segments.
func (c *managerLab) indexes(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(c.dir, "*"+index.Suffix+"*"))
	testenv.Must(t, err)
	return all
}

// TestIndexer: the indexer indexes the segments of earlier runs once, makes a damaged index again,
// and deletes an index with its segment.
func TestIndexer(t *testing.T) {
	c := newManagerLab(t)
	c.to.Index = true
	var files []string
	for _, number := range []string{"000001", "000002", "000003"} {
		name := "md-20260102T030405Z-" + number + ".pcapng"
		c.put(t, name, labSegment(t, 5))
		files = append(files, filepath.Join(c.dir, name))
	}
	c.put(t, filepath.Base(files[1])+index.Suffix, []byte("no index"))
	c.put(t, "other.pcapng"+index.Suffix, []byte("somebody else's"))
	if got := c.indexing(t, nil, 3); got.Segments != 3 || got.Failed != 0 || got.Bytes == 0 || got.CPU == 0 {
		t.Errorf("%+v", got)
	}
	for _, f := range files {
		if !indexed(f) {
			t.Errorf("%s has no index", f)
		}
	}
	refuses := func(context.Context, string) (time.Duration, error) { return time.Second, errors.New("refused") }
	if got := c.indexing(t, refuses, 0); got.Segments != 0 || got.Failed != 0 {
		t.Errorf("the second start: %+v", got)
	}
	testenv.Must(t, os.Remove(files[2]+index.Suffix))
	if got := c.indexing(t, refuses, 1); got.Segments != 0 || got.Failed != 1 || got.CPU != time.Second {
		t.Errorf("refused: %+v", got)
	}
	c.to.Segment.Keep.Count = 2
	s, err := Open(Config{To: c.to, Head: labHead, Log: slog.New(slog.DiscardHandler), MakeIndex: refuses})
	testenv.Must(t, err)
	s.prune()
	testenv.Must(t, s.Close())
	want := []string{files[1] + index.Suffix, filepath.Join(c.dir, "other.pcapng"+index.Suffix)}
	if left := c.indexes(t); !slices.Equal(left, want) {
		t.Errorf("left %v, want %v", left, want)
	}
}

// indexing opens the manager and waits until n indexes were made or failed.
func (c *managerLab) indexing(t *testing.T, m index.Maker, n uint64) status.Index {
	t.Helper()
	s, err := Open(Config{To: c.to, Head: labHead, Log: slog.New(slog.NewTextHandler(&c.log, nil)), MakeIndex: m})
	testenv.Must(t, err)
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if now := s.indexer.status(); n > 0 && now.Segments+now.Failed == n && now.Waiting == 0 {
			break
		} else if n == 0 {
			time.Sleep(100 * time.Millisecond) // gives an unwanted index time to appear
			break
		}
	}
	testenv.Must(t, s.Close())
	return *s.indexer.status()
}

// TestIndexerLeavesNothing: a segment that is removed while its index is made has no index
// afterwards, and a cancelled index does not count as failed.
func TestIndexerLeavesNothing(t *testing.T) {
	c := newManagerLab(t)
	name := "md-20260102T030405Z-000001.pcapng"
	c.put(t, name, labSegment(t, 5))
	path := filepath.Join(c.dir, name)
	testenv.Must(t, c.open(t))
	x := newIndexer(slog.New(slog.DiscardHandler))
	dir, err := newfile.OpenDir(c.dir)
	testenv.Must(t, err)
	defer dir.Close()
	x.names.dir = dir
	x.make = func(ctx context.Context, path string) (time.Duration, error) {
		cpu, err := makeIndex(ctx, path)
		return cpu, errors.Join(err, os.Remove(path))
	}
	x.makeOne(t.Context(), path)
	if left := c.indexes(t); len(left) > 0 || x.failed.Load() > 0 || x.segments.Load() > 0 {
		t.Errorf("left %v: %+v", left, x.status())
	}
	c.put(t, name, labSegment(t, 5))
	testenv.Must(t, c.open(t))
	ctx, stop := context.WithCancel(t.Context())
	stop()
	x.make = makeIndex
	x.makeOne(ctx, path)
	if left := c.indexes(t); len(left) > 0 || x.failed.Load() > 0 {
		t.Errorf("left %v: %+v", left, x.status())
	}
}
