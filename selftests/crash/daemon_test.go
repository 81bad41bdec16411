package crash

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// program is the path of the program under test, and flowTest that of its clients, built once.
var program, flowTest string

func TestMain(m *testing.M) { os.Exit(withProgram(m.Run)) }

// withProgram builds the program for run and removes it afterwards.
func withProgram(run func() int) int {
	dir, err := os.MkdirTemp("", "unifiedd-crash-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program, flowTest = filepath.Join(dir, "unifiedd"), filepath.Join(dir, "unified-flow-test")
	build := exec.Command("go", "build", "-o", dir, "github.com/unifiedd/unifiedd/cmd/unifiedd", "github.com/unifiedd/unifiedd/selftests/unified-flow-test")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the program under test:", err)
		return 1
	}
	return run()
}

// launch runs the program in the namespace of an end.
func launch(t *testing.T, e *testenv.End, dir, text string) *daemon.Daemon {
	t.Helper()
	return daemon.Launch(t, program, e, dir, text)
}
