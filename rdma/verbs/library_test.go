//go:build verbs && cgo

package verbs

import (
	"errors"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/rdma"
)

// TestNoLibrary: a missing or wrong library gives an error that says what to install.
func TestNoLibrary(t *testing.T) {
	for name, want := range map[string]string{"libibverbs-that-is-not-there.so.1": "libibverbs-that-is-not-there.so.1", "libc.so.6": "lacks ibv_get_device_list"} {
		err := load(name)
		if !errors.Is(err, rdma.ErrUnsupported) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "apt-get install libibverbs1") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDeviceThatIsNotThere: the error for a missing device names the existing ones, or says how to
// make one. A kernel without RDMA gives another error.
func TestDeviceThatIsNotThere(t *testing.T) {
	_, err := Provider{}.Open("no-such-device")
	if err == nil || !strings.Contains(err.Error(), "modprobe") {
		t.Error(err)
	}
}
