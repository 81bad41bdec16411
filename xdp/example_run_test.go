package xdp_test

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestExample runs the example as it stands, and checks what it prints.
func TestExample(t *testing.T) {
	testenv.RunExample(t, testenv.PairOptions{NoAddresses: true}, Example, "received 1000 bytes\n")
}
