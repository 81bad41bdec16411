package soak

import (
	"fmt"
	"os"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// program is the path of the daemon.
var program string

// partyVariable makes the test binary run as a party.
const partyVariable = "UNIFIEDD_SOAK_PARTY"

func TestMain(m *testing.M) {
	if text := os.Getenv(partyVariable); text != "" {
		os.Exit(beParty(text))
	}
	var err error
	if program, err = testenv.FindProgram("cmd/unifiedd"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
