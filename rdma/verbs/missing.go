//go:build !verbs || !cgo

package verbs

import (
	"fmt"

	"github.com/unifiedd/unifiedd/rdma"
)

var errMissing = fmt.Errorf("RDMA over libibverbs: %w by this build: build with cgo, -tags verbs and the headers of libibverbs "+
	"(Debian: apt-get install libibverbs-dev; then make)", rdma.ErrUnsupported)

func devices() ([]string, error) { return nil, errMissing }

func open(string) (rdma.Device, error) { return nil, errMissing }
