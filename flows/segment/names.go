package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/unifiedd/unifiedd/internal/newfile"
	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// names are the paths of one flow's segments.
type names struct {
	pcapng.Names
	dir      *newfile.Dir // of the files; nil: on a device
	rotation *rotation    // nil: the files are numbered segments
}

// rename renames a file within the directory.
func (n names) rename(from, to string) error {
	return n.dir.Rename(filepath.Base(from), filepath.Base(to))
}

// remove removes a file from the directory.
func (n names) remove(path string) error { return n.dir.Remove(filepath.Base(path)) }

// open opens a file in the directory. It follows no symbolic link.
func (n names) open(path string, flags int) (*os.File, error) {
	return n.dir.OpenFile(filepath.Base(path), flags)
}

// list returns the flow's segments, oldest first.
func (n names) list() ([]pcapng.Named, error) {
	if n.rotation != nil {
		return n.rotation.list(), nil
	}
	found, err := n.ListAt(n.dir.Path(""))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("list segments: %w (create the directory first)", err)
	case err != nil:
		return nil, fmt.Errorf("list segments: %w (may this user read it?)", err)
	}
	return found, nil
}

// commitName renames a prepared file to its final name, which contains a time, and returns that
// name. The single file of a capture already has its name.
func (n names) commitName(next *Segment, at time.Time, exact bool) (final string, err error) {
	switch {
	case n.rotation != nil:
		return n.rotation.commitName(n, next, at)
	case exact:
		return next.preparedPath, nil
	}
	final = n.Final(next.Number, at)
	return final, n.rename(next.preparedPath, final)
}
