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

// makeFile makes a command's one file where the user may not; nil where the user may, or
// where something is that the command refuses.
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
		return nil, nil // the command says so, with the remedy
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

// mayWrite reports whether the modes of a directory and of those above it let the user
// make files there. Where a list of access rights says otherwise, a file is made without
// need, or the command is refused; both do no harm.
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

// mayReplace reports whether a user who may write to a directory may replace a file there,
// which in a directory like /tmp only the owner of one of both may.
func (u *identity) mayReplace(dir string, file fs.FileInfo) bool {
	in, err := os.Stat(dir)
	if err != nil {
		return false
	}
	return in.Mode()&fs.ModeSticky == 0 || owner(in) == u.uid || owner(file) == u.uid
}

func owner(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

// has reports whether a directory's mode gives the user all these rights, as one of the
// owner, the group or others.
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

// openedFile is a path by which the file that the parent process has made is open; empty: there
// is none. Programs that this one starts do not inherit it.
func openedFile() (string, error) {
	text := os.Getenv(opened)
	if text == "" {
		return "", nil
	}
	os.Unsetenv(opened)
	n, err := strconv.Atoi(text)
	if err != nil || n < firstFile || n > firstFile+mostFiles {
		return "", fmt.Errorf("%s is %q, which is no descriptor of a file from the parent process", opened, text)
	}
	unix.CloseOnExec(n)
	return fmt.Sprintf("/proc/self/fd/%d", n), nil
}
