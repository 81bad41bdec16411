package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// WithPrograms builds the daemon and unified-flow-test, sets their paths, calls run, and removes
// the programs. A guest has no time to build them: there they are in UNIFIEDD_LAB_PROGRAMS.
func WithPrograms(run func() int, unifiedd, flowTest *string) int {
	dir, built := os.LookupEnv("UNIFIEDD_LAB_PROGRAMS")
	if !built {
		var err error
		if dir, err = os.MkdirTemp("", "unifiedd-programs-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
	}
	*unifiedd, *flowTest = filepath.Join(dir, "unifiedd"), filepath.Join(dir, "unified-flow-test")
	if built {
		return run()
	}
	build := exec.Command("go", "build", "-o", dir, "github.com/unifiedd/unifiedd/cmd/unifiedd", "github.com/unifiedd/unifiedd/selftests/unified-flow-test")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the programs under test:", err)
		return 1
	}
	return run()
}
