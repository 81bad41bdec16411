package providers

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// example is the Example of this package, for TestExample. It is in package providers_test, where a user
// would write it.
var example func()

// SetExample sets the function that TestExample runs.
func SetExample(f func()) { example = f }

// TestExample runs the example as it stands.
func TestExample(t *testing.T) { testenv.RunExample(t, testenv.PairOptions{}, example) }
