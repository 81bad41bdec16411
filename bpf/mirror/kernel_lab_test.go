//go:build lab

package mirror

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestOnThisKernel mirrors on the kernels of the lab, of which some have no links for tc programs.
func TestOnThisKernel(t *testing.T) {
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
