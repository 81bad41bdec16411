package mirror

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestOnThisKernel runs the mirror tests on the kernels of the lab. Some of these have no links for
// tc programs.
func TestOnThisKernel(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, "the same tests run on this machine's kernel")
	for name, run := range map[string]func(*testing.T){
		"Mirror":     TestMirror,
		"TwoMirrors": TestTwoMirrors,
		"Detached":   TestDetached,
		"Gone":       TestGone,
		"Killed":     TestKilled,
	} {
		t.Run(name, run)
	}
}
