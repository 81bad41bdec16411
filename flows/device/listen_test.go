package device

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// TestLogFailures: a failed handshake is logged with its reason. Refusals, which the server logs,
// and connections that are merely closed are not. There is at most one entry a second.
func TestLogFailures(t *testing.T) {
	fail := func(r connect.Reason) error {
		return &connect.Error{Reason: r, Peer: "192.0.2.7:1", Step: "agree on TLS", Err: errors.New("bad certificate")}
	}
	for _, r := range connect.Reasons {
		var out strings.Builder
		var now time.Duration
		failed := logFailures(slog.New(slog.NewTextHandler(&out, nil)), func() time.Duration { return now })
		for _, now = range []time.Duration{0, 1, time.Second - 1, time.Second, time.Second + 1} {
			failed(fail(r))
		}
		want := 2
		switch r {
		case connect.ReasonRefused, connect.ReasonQueuePair, connect.ReasonClosed, connect.ReasonCancelled:
			want = 0
		}
		if n := strings.Count(out.String(), "reason="+string(r)+" "); n != want {
			t.Errorf("%s: %d log entries instead of %d:\n%s", r, n, want, out.String())
		}
		if want > 0 && !strings.Contains(out.String(), "192.0.2.7:1") {
			t.Errorf("%s: the entry does not name the peer:\n%s", r, out.String())
		}
	}
}

// TestReasonsAreDocumented: docs/reference/reasons.md says what to do for each reason of the handshake.
func TestReasonsAreDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "reasons.md"))
	testenv.Must(t, err)
	_, table, _ := strings.Cut(string(text), "| reason of the handshake |")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, r := range connect.Reasons {
		if !strings.Contains(table, "`"+string(r)+"`") {
			t.Errorf("the table of docs/reference/reasons.md has no %s", r)
		}
	}
}
