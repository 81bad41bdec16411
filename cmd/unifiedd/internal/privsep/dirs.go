package privsep

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/files"
	"github.com/unifiedd/unifiedd/internal/newfile"
)

// makeDirs makes missing directories, with their parents, and gives them to the user. Programs of other users may pass to
// the sockets in them, each of which says by its own mode who may connect.
func (o Options) makeDirs(u *identity) error {
	for _, dir := range o.Dirs {
		mode := fs.FileMode(0o750)
		if slices.ContainsFunc(o.Sockets, func(socket string) bool { return filepath.Dir(socket) == filepath.Clean(dir) }) {
			mode = 0o755
		}
		if err := makeDir(filepath.Clean(dir), mode, u); err != nil {
			return fmt.Errorf("make directory %s: %w", dir, err)
		}
	}
	return nil
}

// makeDir makes a directory and gives it to the user. It does not change an existing one, which may
// belong to anyone, for example /tmp. It changes the owner through the descriptor, because another
// process may have replaced the name.
func makeDir(dir string, mode fs.FileMode, u *identity) error {
	info, err := os.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return errors.New("there is something else of that name")
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := makeDir(parent, mode, u); err != nil {
			return err
		}
	}
	in, err := newfile.OpenDir(parent)
	if err != nil {
		return err
	}
	defer in.Close()
	made, err := in.Mkdir(filepath.Base(dir), mode)
	if err != nil {
		return err
	}
	defer made.Close()
	if u == nil {
		return nil
	}
	return made.Chown(int(u.uid), int(u.gid))
}

// existing returns the directories that exist.
func existing(dirs []string) []string {
	return slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool {
		_, err := os.Stat(dir)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// checkDirs checks that this process may make files in each directory.
func checkDirs(dirs []string, uid uint32) error {
	for _, dir := range dirs {
		err := unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
		if errors.Is(err, unix.EROFS) {
			return fmt.Errorf("use directory %s: %w (%s)", dir, err, files.ReadOnly(dir))
		}
		if err != nil {
			return fmt.Errorf("use directory %s as user %d: %w (run: install -d -o %d %s)", dir, uid, err, uid, dir)
		}
	}
	return nil
}
