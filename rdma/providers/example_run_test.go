package providers

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// Run by TestExample; the example is in package providers_test, where a user would write it.
var example func()

// SetExample says which function TestExample runs.
func SetExample(f func()) { example = f }

// TestExample runs the package's example on an interface of the name that it uses.
func TestExample(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{})
	pair.B.Rename(t, "eth0")
	pair.B.Do(t, example)
}
