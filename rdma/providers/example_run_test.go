package providers

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestExample calls this function. The example is in package providers_test, where a user would
// write it.
var example func()

// SetExample sets the function that TestExample runs.
func SetExample(f func()) { example = f }

// TestExample runs the package's example on an interface of the name that it uses.
func TestExample(t *testing.T) {
	pair := testenv.NewPair(t, testenv.PairOptions{})
	pair.B.Rename(t, "eth0")
	pair.B.Do(t, example)
}
