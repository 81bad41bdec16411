package powercut

import (
	"fmt"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// launch runs the program with flows in the namespace of an end. Each flow adds 96 MiB to the
// region. pages is the kind of the region's pages.
func launch(t *testing.T, program string, e *testenv.End, pages string, text ...string) *daemon.Daemon {
	t.Helper()
	region := fmt.Sprintf("region: {size: %dMiB, pages: %s, extent: 256KiB}\nflows:\n", 96*len(text), pages)
	return daemon.Launch(t, program, e, t.TempDir(), region+strings.Join(text, ""))
}
