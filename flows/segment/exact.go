package segment

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/newfile"
)

// MakeExact creates the single file of a capture for a process of another user that may not write
// to the directory, and makes that user its owner. It replaces an existing capture, unless another
// process writes it.
func MakeExact(path string, uid, gid int) (*os.File, error) {
	dir, err := newfile.OpenDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	s := &Manager{to: config.To{File: path, Exact: true}, names: names{dir: dir}}
	if err := s.replaceExact(); err != nil {
		return nil, err
	}
	prepared := filepath.Base(s.exactPrepared())
	f, err := dir.Create(prepared, 0o640)
	if err != nil {
		return nil, err
	}
	if err = f.Chown(uid, gid); err != nil {
		err = fmt.Errorf("give %s to user %d: %w", path, uid, err)
	} else {
		err = dir.Rename(prepared, filepath.Base(path))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), dir.Remove(prepared))
	}
	if err := dir.Sync(); err != nil && !errors.Is(err, unix.EINVAL) { // the file system has no fsync of directories
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
