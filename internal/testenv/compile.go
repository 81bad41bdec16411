package testenv

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Compile builds a program of one C file, any warning of which is an error, and returns its path. Flags are gcc's, libraries among them.
func Compile(t testing.TB, source string, flags ...string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(source), ".c"))
	args := append([]string{"-O2", "-Wall", "-Wextra", "-Werror", "-o", path, source}, flags...)
	if out, err := exec.Command(Tool(t, "gcc"), args...).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", source, err, out)
	}
	return path
}
