package testenv

import (
	"errors"
	"fmt"
	"testing"
)

// Must fails the test at once if one of the errors is not nil.
func Must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Mustf is Must for an error that does not say what was tried.
func Mustf(t testing.TB, err error, tried string, args ...any) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", fmt.Sprintf(tried, args...), err)
	}
}
