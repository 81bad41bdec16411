package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// WithPrograms builds the daemon and unified-flow-test, sets their paths, calls run, and removes
// the programs. In the lab guest it takes those that the lab has built.
func WithPrograms(run func() int, unifiedd, flowTest *string) int {
	if dir := os.Getenv("UNIFIEDD_LAB_PROGRAMS"); dir != "" {
		*unifiedd, *flowTest = filepath.Join(dir, "unifiedd"), filepath.Join(dir, "unified-flow-test")
		return run()
	}
	dir, err := os.MkdirTemp("", "unifiedd-programs-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	*unifiedd, *flowTest = filepath.Join(dir, "unifiedd"), filepath.Join(dir, "unified-flow-test")
	build := exec.Command("go", "build", "-o", dir, "github.com/unifiedd/unifiedd/cmd/unifiedd", "github.com/unifiedd/unifiedd/selftests/unified-flow-test")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the programs under test:", err)
		return 1
	}
	return run()
}
