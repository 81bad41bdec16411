//go:build !verbs || !cgo

package verbs

import (
	"errors"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/rdma"
)

// TestMissing: a build without libibverbs reports that, and how to build with it.
func TestMissing(t *testing.T) {
	_, err1 := Provider{}.Devices()
	_, err2 := Provider{}.Open("rxe0")
	for _, err := range []error{err1, err2} {
		if !errors.Is(err, rdma.ErrUnsupported) || !strings.Contains(err.Error(), "libibverbs-dev") {
			t.Error(err)
		}
	}
}
