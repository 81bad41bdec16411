package testenv

import (
	"errors"
	"fmt"
	"testing"
)

// Check is Must for clean-ups and for goroutines other than the test's: the test goes on.
func Check(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// Checkf is to Check what Mustf is to Must.
func Checkf(t testing.TB, err error, tried string, args ...any) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", fmt.Sprintf(tried, args...), err)
	}
}
