package protocol

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// TestLogReason: a log entry has the word of a Reason, and no attribute for another error.
func TestLogReason(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("client 7: %w", Busy), "msg=refused reason=busy\n"},
		{errors.New("the peer left"), "msg=refused\n"},
		{nil, "msg=refused\n"},
	} {
		var out strings.Builder
		slog.New(slog.NewTextHandler(&out, nil)).Info("refused", LogReason(c.err))
		if !strings.HasSuffix(out.String(), c.want) {
			t.Errorf("%v: %q does not end with %q", c.err, out.String(), c.want)
		}
	}
}
