package caps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Status is the rights of a thread, from /proc/PID/status.
type Status struct {
	UID, GID    ID
	Inheritable Set
	Permitted   Set
	Effective   Set
	Bounding    Set
	Ambient     Set
	NoNewPrivs  bool // a program it starts can gain nothing
	Seccomp     int  // 0: no filter of system calls, 1: strict, 2: filtered
}

// ID is the four user or group numbers of a thread.
type ID struct{ Real, Effective, Saved, FS uint32 }

// Reach returns all capabilities that a thread has or can make effective.
func (s Status) Reach() Set {
	return s.Effective | s.Permitted | s.Inheritable | s.Ambient
}

// Self is the status of the calling process's first thread.
func Self() (Status, error) { return read("/proc/self/status") }

// Thread is the status of the calling thread; the caller has its goroutine locked
// to it.
func Thread() (Status, error) { return read("/proc/thread-self/status") }

// Threads is the status of every thread of the calling process.
func Threads() ([]Status, error) {
	files, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		return nil, err
	}
	var all []Status
	for _, f := range files {
		s, err := read(f)
		if ended(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil, errors.New("read capabilities: /proc shows no threads of this process (is it mounted?)")
	}
	return all, nil
}

// ended reports whether a thread's file could not be read because the thread no longer exists. The
// kernel returns another error if the thread ends after the file is open (proc_single_show in
// fs/proc/base.c).
func ended(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

func read(file string) (Status, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Status{}, fmt.Errorf("read capabilities: %w", err)
	}
	s, err := Parse(string(text))
	if err != nil {
		return Status{}, fmt.Errorf("read capabilities: %s: %w", file, err)
	}
	return s, nil
}

// Parse reads the text of a status file. A line that is missing or malformed is
// an error, since taking it for empty would hide rights.
func Parse(text string) (Status, error) {
	lines := make(map[string]string)
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		lines[key] = strings.TrimSpace(value)
	}
	var s Status
	err := errors.Join(
		parseID(lines, "Uid", &s.UID), parseID(lines, "Gid", &s.GID),
		parseSet(lines, "CapInh", &s.Inheritable), parseSet(lines, "CapPrm", &s.Permitted),
		parseSet(lines, "CapEff", &s.Effective), parseSet(lines, "CapBnd", &s.Bounding),
		parseSet(lines, "CapAmb", &s.Ambient),
	)
	s.NoNewPrivs = lines["NoNewPrivs"] == "1"
	s.Seccomp, _ = strconv.Atoi(lines["Seccomp"]) // absent where the kernel has no seccomp
	return s, err
}

func parseSet(lines map[string]string, key string, set *Set) error {
	n, err := strconv.ParseUint(lines[key], 16, 64)
	if err != nil {
		return fmt.Errorf("line %s: %w", key, err)
	}
	*set = Set(n)
	return nil
}

func parseID(lines map[string]string, key string, id *ID) error {
	n, err := fmt.Sscan(lines[key], &id.Real, &id.Effective, &id.Saved, &id.FS)
	if err != nil {
		return fmt.Errorf("line %s: %d numbers: %w", key, n, err)
	}
	return nil
}
