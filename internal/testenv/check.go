package testenv

import (
	"errors"
	"testing"
)

// Check is Must for clean-ups and for goroutines other than the test's: the test goes on.
func Check(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}
