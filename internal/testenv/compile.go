package testenv

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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

// Build compiles a program of this repository, such as "cmd/unifiedd", and returns its
// path. The program has only the build tags of GOFLAGS, and not those of go test's option -tags.
func Build(t testing.TB, program string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(program))
	if out, err := exec.Command("go", "build", "-o", path, "github.com/unifiedd/unifiedd/"+program).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", program, err, out)
	}
	return path
}
