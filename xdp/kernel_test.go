package xdp

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// kernelHas reports whether the running kernel has at least this version.
func kernelHas(t testing.TB, major, minor int) bool {
	t.Helper()
	var u unix.Utsname
	testenv.Must(t, unix.Uname(&u))
	var a, b int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &a, &b); err != nil {
		t.Fatal(err)
	}
	return slices.Compare([]int{a, b}, []int{major, minor}) >= 0
}

// needFragments skips the test if the kernel reports that it does not support packets of several
// frames, and is too old for them.
func needFragments(t testing.TB) {
	t.Helper()
	err := takesFragments()
	switch {
	case err == nil:
	case !errors.Is(err, ErrNotSupported), kernelHas(t, 6, 6):
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}
