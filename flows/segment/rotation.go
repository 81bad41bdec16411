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

// turns names the files of a capture that begins new ones as tcpdump does with -C, -G and -W. Each is prepared under a hidden
// name, and takes the place of what has its name when it is taken into use.
type rotation struct {
	config.Rotate
	path  string // strftime's where files begin after a time
	mu    sync.Mutex
	since time.Time // since when there are files of this time
	index int       // the last one of those
	files []pcapng.Named
}

// prepared is the path of a file before it is used.
func (t *rotation) prepared(number int) string {
	dir, base := filepath.Split(t.path)
	return filepath.Join(dir, fmt.Sprintf(".%s-%d-%06d.next", base, os.Getpid(), number))
}

// room is how large a file is made: as large as it is to be, but large enough for any packet. At its end it is cut.
func (t *rotation) preparedSize() uint64 {
	if t.Size == 0 {
		return 0
	}
	return (max(uint64(t.Size), minSegment) + pcapng.MaxAlign - 1) &^ (pcapng.MaxAlign - 1)
}

// take names the next file, which is of a time, and is the oldest's place in a ring.
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

// ring reports whether the files are so many, over and over.
func (t *rotation) ring() bool { return t.Files > 0 && t.Size > 0 }

// ends reports whether a file is the last one there is to be.
func (t *rotation) isLast(number int) bool { return t.Files > 0 && t.Size == 0 && number >= t.Files }

// name is what tcpdump calls the nth file of a time.
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

// list are the files that are there, oldest first.
func (t *rotation) list() []pcapng.Named {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.files = slices.DeleteFunc(t.files, func(e pcapng.Named) bool {
		_, err := os.Lstat(e.Path)
		return err != nil
	})
	return slices.Clone(t.files)
}

// christen gives a prepared file its name. Only a regular file is replaced.
func (t *rotation) commitName(n names, next *Segment, at time.Time) (string, error) {
	final := t.next(next.Number, at)
	if err := n.dir.Regular(filepath.Base(final)); err != nil {
		return "", err
	}
	return final, n.rename(next.preparedPath, final)
}

// begin looks at the first file's name before a capture begins, and removes files that others, which were killed, had
// prepared and not used.
func (t *rotation) open(n names) error {
	if strings.Contains(filepath.Dir(t.path), "%") && t.Every > 0 {
		return fmt.Errorf("%s: only the file's name may have a time in it, not its directory's", t.path)
	}
	if err := n.dir.Regular(filepath.Base(t.name(time.Now(), 0))); err != nil {
		return err
	}
	return n.removeStale(t.path)
}

// removeLeft removes the files that others, which were killed, had prepared for a path and not used.
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

// removeUnused removes a prepared file that nobody writes and nothing was captured into.
func (n names) removeUnused(name string) error {
	f, err := n.open(name, os.O_RDWR)
	if err != nil {
		return nil // it is somebody else's
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
