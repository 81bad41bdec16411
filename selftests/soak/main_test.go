package soak

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// program is the path of the daemon, built once.
var program string

// partyVariable makes the test binary run as a party.
const partyVariable = "UNIFIEDD_SOAK_PARTY"

func TestMain(m *testing.M) {
	if text := os.Getenv(partyVariable); text != "" {
		os.Exit(beParty(text))
	}
	os.Exit(withProgram(m.Run))
}

// withProgram builds the daemon for run and removes it afterwards.
func withProgram(run func() int) int {
	dir, err := os.MkdirTemp("", "unifiedd-soak-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "unifiedd")
	build := exec.Command("go", "build", "-o", program, "github.com/unifiedd/unifiedd/cmd/unifiedd")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the program under test:", err)
		return 1
	}
	return run()
}
