package control

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/page"
	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// missing is an interface that does not exist.
const missing = "missing0"

// openDaemon opens a daemon with one flow, which cannot start.
func openDaemon(t *testing.T) *flows.Daemon {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	c, err := config.Parse("test.yaml", []byte(`
region: {size: 16MiB, pages: ordinary, extents: 0}
flows:
  - name: cap
    from: {interface: `+missing+`, ring: 512}
    to: {discard: true}
`), config.Options{})
	testenv.Must(t, err)
	d, err := flows.Open(c, flows.Options{Version: "test", Log: slog.New(slog.DiscardHandler)})
	testenv.Must(t, err)
	t.Cleanup(func() {
		testenv.Check(t, d.Close())
	})
	return d
}

// get returns a handler's answer to a request for a page.
func get(h http.Handler, path string) (code int, body string) {
	r := httptest.NewRecorder()
	h.ServeHTTP(r, httptest.NewRequest("GET", path, nil))
	return r.Code, r.Body.String()
}

// TestReadyTellsOwnerWhy: the metrics port reports which flow is not ready. Only the socket's owner
// learns the cause.
func TestReadyTellsOwnerWhy(t *testing.T) {
	d := openDaemon(t)
	if err := d.Start(); err == nil {
		t.Fatal("a flow runs on an interface that does not exist")
	}
	if code, body := get(publicHandler(d, page.New(d.Status, nil, nil, page.Public)), "/readyz"); code != http.StatusServiceUnavailable || body != "flow cap is failed\n" {
		t.Errorf("on the network, readyz: %d %q", code, body)
	}
	code, body := get(controlHandler(&Reloader{Daemon: d}, page.New(d.Status, nil, nil, page.Owner)), "/readyz")
	if code != http.StatusServiceUnavailable || !strings.Contains(body, "flow cap is failed: ") || !strings.Contains(body, missing) {
		t.Errorf("on the control socket, readyz: %d %q", code, body)
	}
}

// TestIndexPage: the page / of the metrics port lists its other pages. Unknown paths, and those of
// the control socket alone, have no page.
func TestIndexPage(t *testing.T) {
	d := openDaemon(t)
	for path, want := range map[string]int{"/": http.StatusOK, "/nope": http.StatusNotFound, "/status": http.StatusNotFound, "/debug/pprof/": http.StatusNotFound} {
		code, body := get(publicHandler(d, page.New(d.Status, nil, nil, page.Public)), path)
		if code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
		if path == "/" && !strings.Contains(body, `href="metrics"`) {
			t.Errorf("/ does not lead to /metrics: %s", body)
		}
	}
}
