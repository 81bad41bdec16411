package daemon

import (
	"fmt"
	"os"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// WithPrograms finds the daemon and unified-flow-test, sets their paths, and calls run.
func WithPrograms(run func() int, unifiedd, flowTest *string) int {
	for name, path := range map[string]*string{"cmd/unifiedd": unifiedd, "selftests/unified-flow-test": flowTest} {
		var err error
		if *path, err = testenv.FindProgram(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return run()
}
