package bench

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Path returns the absolute path of a file of the repository. Tests run in the folder of their package.
func Path(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../..", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Unpacked returns the path of a file of a package that scripts/setup.sh demo test unpacks, and the folder of its libraries.
func Unpacked(t testing.TB, name string) (path, libraries string) {
	t.Helper()
	path = Path(t, "build/unpacked/"+name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v (unpack it: scripts/setup.sh demo test)", err)
	}
	all, err := filepath.Glob(Path(t, "build/unpacked/usr/lib/*-linux-gnu"))
	if err != nil || len(all) == 0 {
		t.Fatalf("there are no libraries in build/unpacked: %v", err)
	}
	return path, all[0]
}

// Stolen is how long so far the host of this machine withheld processors that the machine wanted, in sum:
// proc_stat(5). It is 0 if the kernel does not report it.
func Stolen() time.Duration {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 {
		return 0
	}
	ticks, _ := strconv.ParseInt(fields[8], 10, 64)
	return time.Duration(ticks) * 10 * time.Millisecond
}
