package bugreport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// readSome returns the beginning of a file, at most this many bytes. It does not wait for one that
// is no regular file.
func readSome(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// show writes files that match the patterns, each below its name. A file that does not exist, or has no
// value now, is left out.
func show(w io.Writer, patterns ...string) error {
	var errs []error
	for _, pattern := range patterns {
		names, err := filepath.Glob(pattern)
		if err != nil {
			errs = append(errs, err)
		}
		for _, name := range names {
			if info, err := os.Stat(name); err == nil && info.Mode()&0o444 == 0 {
				continue // of sysfs, only to be written
			}
			text, err := readSome(name, 256<<10)
			switch {
			case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.EISDIR), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENODEV):
				continue
			case err != nil:
				errs = append(errs, err)
				continue
			}
			if text = bytes.TrimRight(text, "\n"); bytes.IndexByte(text, '\n') < 0 {
				fmt.Fprintf(w, "%s: %s\n", name, text)
			} else {
				fmt.Fprintf(w, "\n== %s\n%s\n", name, text)
			}
		}
	}
	return errors.Join(errs...)
}

// commandTime is how long one command may take.
const commandTime = 5 * time.Second

// runCommand writes the output of a command, with errors, below its command line. A program that is
// not installed is no error: the report has the same facts from the kernel, as far as it tells them.
func runCommand(ctx context.Context, w io.Writer, name string, args ...string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		path = "/usr/sbin/" + name // not in the PATH of every user
		if _, err := os.Stat(path); err != nil {
			fmt.Fprintf(w, "\n== %s: not installed\n", name)
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "SYSTEMD_PAGER=", "SYSTEMD_COLORS=0")
	cmd.WaitDelay = time.Second
	fmt.Fprintf(w, "\n== %s %s\n", name, strings.Join(args, " "))
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Run(); err != nil {
		fmt.Fprintf(w, "(%v)\n", err) // as of ethtool, for what a driver cannot do
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %w", name, ctx.Err())
		}
	}
	return nil
}

// lastLines returns the last lines of a file.
func lastLines(path string, lines int) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	const most = mostBytes / 2
	at := max(0, info.Size()-most)
	text := make([]byte, min(info.Size(), most))
	n, err := f.ReadAt(text, at)
	if err != nil && err != io.EOF {
		return nil, err
	}
	return tail(text[:n], lines), nil
}

// tail returns the last lines of a text.
func tail(text []byte, lines int) []byte {
	at := len(text)
	for n := 0; at > 0; at-- {
		if text[at-1] == '\n' && at < len(text) {
			if n++; n == lines {
				break
			}
		}
	}
	return text[at:]
}

// firstLines returns the first lines of a text.
func firstLines(text []byte, lines int) []byte {
	at := 0
	for range lines {
		n := bytes.IndexByte(text[at:], '\n')
		if n < 0 {
			return text
		}
		at += n + 1
	}
	return text[:at]
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
