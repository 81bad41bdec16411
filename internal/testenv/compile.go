package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Compile builds a program from one C file and returns its path. Any warning is an error. flags are
// gcc's, including libraries.
func Compile(t testing.TB, source string, flags ...string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(source), ".c"))
	args := append([]string{"-O2", "-Wall", "-Wextra", "-Werror", "-o", path, source}, flags...)
	if out, err := exec.Command(Tool(t, "gcc"), args...).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", source, err, out)
	}
	return path
}

// module is the path of this repository's module.
const module = "github.com/unifiedd/unifiedd"

// Program returns the path of a program of this repository, such as "cmd/unifiedd". See FindProgram.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := FindProgram(name)
	Must(t, err)
	return path
}

// FindProgram returns the path of a program of this repository, such as "cmd/unifiedd". The
// directories in UNIFIEDD_PROGRAMS and, in a guest, UNIFIEDD_LAB_PROGRAMS may have it. Otherwise
// FindProgram builds it below build/test-programs, unless it is there and up to date. The program
// has only the build tags of GOFLAGS, and not those of go test's option -tags.
func FindProgram(name string) (path string, err error) {
	for _, variable := range []string{"UNIFIEDD_PROGRAMS", "UNIFIEDD_LAB_PROGRAMS"} {
		if dir := os.Getenv(variable); dir != "" {
			path = filepath.Join(dir, filepath.Base(name))
			if _, err := os.Stat(path); err == nil {
				return path, nil
			}
		}
	}
	built.Lock()
	defer built.Unlock()
	if path = built.paths[name]; path != "" {
		return path, nil
	}
	if path, err = build(name); err != nil {
		return "", fmt.Errorf("build %s: %w", name, err)
	}
	built.paths[name] = path
	return path, nil
}

// built has the programs that this process has built or found up to date.
var built = struct {
	sync.Mutex
	paths map[string]string
}{paths: map[string]string{}}

// build builds a program, while no other process does.
func build(name string) (path string, err error) {
	root, err := sourceTree()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "build", "test-programs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close() // and unlock
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", err
	}
	path = filepath.Join(dir, filepath.Base(name))
	cmd := exec.Command("go", "build", "-o", path, module+"/"+name)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
}

// sourceTree returns the directory of this repository's go.mod, above the working directory.
// Modules that are nested in it have a go.mod too.
func sourceTree() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		text, _ := os.ReadFile(filepath.Join(dir, "go.mod")) // most directories have none
		if strings.HasPrefix(string(text), "module "+module+"\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no directory above the working directory has the go.mod of " + module)
		}
		dir = filepath.Dir(dir)
	}
}
