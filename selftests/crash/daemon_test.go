package crash

import (
	"os"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// program is the path of the daemon, and flowTest that of its clients. Both are built once.
var program, flowTest string

func TestMain(m *testing.M) { os.Exit(daemon.WithPrograms(m.Run, &program, &flowTest)) }

// launch runs the program in the namespace of an end.
func launch(t *testing.T, e *testenv.End, dir, text string) *daemon.Daemon {
	t.Helper()
	return daemon.Launch(t, program, e, dir, text)
}
