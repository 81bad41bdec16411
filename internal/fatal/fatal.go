// Package fatal ends tests at errors. It imports nothing else of the tree, so that every test may use it.
package fatal

import (
	"errors"
	"testing"
)

// If ends the test if any of the errors is not nil.
func If(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
