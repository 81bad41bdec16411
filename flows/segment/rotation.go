package segment

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/strftime"
)

// rotation names the files of a capture that rotates as with tcpdump's -C, -G and -W. Each file is
// prepared under a hidden name. It replaces the file of its final name when it is acquired.
type rotation struct {
	config.Rotate
	path  string // with Every a strftime format
	mu    sync.Mutex
	since time.Time // the time in the names of the current files
	index int       // of the last file with that time
	files []pcapng.Named
}

// prepared returns the path of a file before it is acquired.
func (t *rotation) prepared(number int) string {
	dir, base := filepath.Split(t.path)
	return filepath.Join(dir, fmt.Sprintf(".%s-%d-%06d.next", base, os.Getpid(), number))
}

// preparedSize returns the size to allocate: at least enough for any packet. Sealing truncates the
// file.
func (t *rotation) preparedSize() uint64 {
	if t.Size == 0 {
		return 0
	}
	return (max(uint64(t.Size), minSegment) + pcapng.MaxAlign - 1) &^ (pcapng.MaxAlign - 1)
}

// next returns the path of the next file, which begins at a time. In a ring it is the path of the
// oldest file.
func (t *rotation) next(number int, at time.Time) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !at.Equal(t.since):
		t.since, t.index = at, 0
	case t.ring():
		t.index = (t.index + 1) % t.Files
	default:
		t.index++
	}
	path := t.name(at, t.index)
	t.files = slices.DeleteFunc(t.files, func(e pcapng.Named) bool { return e.Path == path })
	t.files = append(t.files, pcapng.Named{Path: path, Number: number})
	return path
}

// ring reports whether the capture overwrites a fixed number of files in rotation.
func (t *rotation) ring() bool { return t.Files > 0 && t.Size > 0 }

// isLast reports whether the file with a number is the last one.
func (t *rotation) isLast(number int) bool { return t.Files > 0 && t.Size == 0 && number >= t.Files }

// name returns tcpdump's name for the nth file of a time.
func (t *rotation) name(at time.Time, nth int) string {
	path := t.path
	if t.Every > 0 {
		path = strftime.Format(path, at)
	}
	digits := 0
	for most := t.Files - 1; most > 0; most /= 10 {
		digits++
	}
	if t.Size == 0 || nth == 0 && digits == 0 {
		return path
	}
	return fmt.Sprintf("%s%0*d", path, digits, nth)
}

// list returns the files that exist, oldest first.
func (t *rotation) list() []pcapng.Named {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.files = slices.DeleteFunc(t.files, func(e pcapng.Named) bool {
		_, err := os.Lstat(e.Path)
		return err != nil
	})
	return slices.Clone(t.files)
}

// commitName gives a prepared file its final name. It replaces a regular file only.
func (t *rotation) commitName(n names, next *Segment, at time.Time) (string, error) {
	final := t.next(next.Number, at)
	if err := n.dir.Regular(filepath.Base(final)); err != nil {
		return "", err
	}
	return final, n.rename(next.preparedPath, final)
}

// open checks the path of the first file. It removes files that killed processes prepared and did
// not use.
func (t *rotation) open(n names) error {
	if strings.Contains(filepath.Dir(t.path), "%") && t.Every > 0 {
		return fmt.Errorf("%s: only the file's name may have a time in it, not its directory's", t.path)
	}
	if err := n.dir.Regular(filepath.Base(t.name(time.Now(), 0))); err != nil {
		return err
	}
	return n.removeStale(t.path)
}

// removeStale removes the files that killed processes prepared for a path and did not use.
func (n names) removeStale(path string) error {
	dir, base := filepath.Split(path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); strings.HasPrefix(name, "."+base+"-") && strings.HasSuffix(name, ".next") {
			if err := n.removeUnused(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeUnused removes a prepared file if no process writes it and it has no packets.
func (n names) removeUnused(name string) error {
	f, err := n.open(name, os.O_RDWR)
	if err != nil {
		return nil // the process may not open it
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}
	r, err := pcapng.Recover(f, pcapng.Options{DryRun: true})
	if err == nil && r.Batches > 0 {
		return nil
	}
	return n.remove(name)
}
