package strftime

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestSameAsDate: every conversion gives the same as date(1).
func TestSameAsDate(t *testing.T) {
	var all []string
	for c := range layouts {
		all = append(all, "%"+string(c))
	}
	pattern := strings.Join(append(all, "%s", "%%", "x"), "|")
	testenv.Must(t, Check(pattern))
	for _, unix := range []int64{0, 951782400, 1795329901, 1767225599} {
		cmd := exec.Command("date", "-d", "@"+strconv.FormatInt(unix, 10), "+"+pattern)
		cmd.Env = append(cmd.Environ(), "LC_ALL=C", "TZ=UTC0")
		out, err := cmd.Output()
		testenv.Must(t, err)
		if got, want := Format(pattern, time.Unix(unix, 0).UTC()), strings.TrimSuffix(string(out), "\n"); got != want {
			t.Errorf("at %d: %q, want %q", unix, got, want)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, pattern := range []string{"a%", "%Q", "%5d"} {
		if Check(pattern) == nil {
			t.Errorf("%q is accepted", pattern)
		}
	}
}
