package powercut

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// launch runs the program with flows in the namespace of an end.
func launch(t *testing.T, program string, e *testenv.End, text string) *daemon.Daemon {
	t.Helper()
	return daemon.Launch(t, program, e, t.TempDir(), "region: {size: 128MiB, pages: ordinary, extent: 256KiB}\nflows:\n"+text)
}
