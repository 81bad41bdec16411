package privsep

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/segment"
)

// makeFile makes a command's file if the user may not make it. It returns nil if the user may, or
// if the command will refuse what is at the path.
func (o Options) makeFile(u *identity) (*os.File, error) {
	if o.File == "" || u == nil || u.uid == 0 {
		return nil, nil
	}
	info, err := os.Lstat(o.File)
	if err == nil && !info.Mode().IsRegular() || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	dir := filepath.Dir(o.File)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the command reports it, with the remedy
	}
	if u.mayWrite(dir) && (err != nil || u.mayReplace(dir, info)) {
		return nil, nil
	}
	f, err := segment.MakeExact(o.File, int(u.uid), int(u.gid))
	if err != nil {
		return nil, fmt.Errorf("make the file for user %d: %w", u.uid, err)
	}
	return f, nil
}

// mayWrite reports whether the modes of a directory and of its parents let the user make files
// there. If an access control list says otherwise, the parent process makes a file without need, or
// the command fails. Neither does harm.
func (u *identity) mayWrite(dir string) bool {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil || !u.has(dir, 0o3) {
		return false
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if !u.has(filepath.Dir(dir), 0o1) {
			return false
		}
	}
	return true
}

// mayReplace reports whether a user who may write to a directory may replace a file there. In a
// directory like /tmp only the owner of the file or of the directory may.
func (u *identity) mayReplace(dir string, file fs.FileInfo) bool {
	in, err := os.Stat(dir)
	if err != nil {
		return false
	}
	return in.Mode()&fs.ModeSticky == 0 || owner(in) == u.uid || owner(file) == u.uid
}

func owner(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

// has reports whether a directory's mode gives the user all these rights, as its owner, in its
// group or as another user.
func (u *identity) has(dir string, rights fs.FileMode) bool {
	info, err := os.Stat(dir)
	if err != nil {
		return false
	}
	mode, st := info.Mode().Perm(), info.Sys().(*syscall.Stat_t)
	switch {
	case st.Uid == u.uid:
		mode >>= 6
	case st.Gid == u.gid || slices.Contains(u.groups, st.Gid):
		mode >>= 3
	}
	return mode&rights == rights
}

// openedFile returns a path to the open file that the parent process has made. It is empty if there
// is none. Programs that this process starts do not inherit the file.
func openedFile() (string, error) { return passedFile(opened) }

// PassedConfig returns a path to Options.Config of the parent process. It is empty if there is none.
func PassedConfig() (string, error) { return passedFile(configMarker) }

func passedFile(marker string) (string, error) {
	text := os.Getenv(marker)
	if text == "" {
		return "", nil
	}
	os.Unsetenv(marker)
	n, err := strconv.Atoi(text)
	if err != nil || n < firstFile || n > firstFile+mostFiles {
		return "", fmt.Errorf("%s is %q, which is no descriptor of a file from the parent process", marker, text)
	}
	unix.CloseOnExec(n)
	return fmt.Sprintf("/proc/self/fd/%d", n), nil
}
