package nvme

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestFileSizeLimit: the error of a file that is too large names the process's limit, if that is the reason.
func TestFileSizeLimit(t *testing.T) {
	var before unix.Rlimit
	testenv.Must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &before))
	defer func() { testenv.Check(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &before)) }()
	testenv.Must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 40, Max: before.Max}))
	if said := FileSizeLimit(unix.EFBIG).Error(); !strings.Contains(said, "1099511627776 bytes") || !strings.Contains(said, "ulimit -f") {
		t.Error(said)
	}
}
