package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestOlderDaemon: of a request that a daemon of an older release does not know, the error says so, and the daemon's version. A
// handler's own refusal stays as it is.
func TestOlderDaemon(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "control.sock")
	l, err := net.Listen("unix", socket)
	testenv.Must(t, err)
	m := http.NewServeMux()
	m.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"version": "0.0.9"}`) })
	m.HandleFunc("POST /flows/{name}/group", func(http.ResponseWriter, *http.Request) {})
	m.HandleFunc("POST /flows/{name}/stop", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "there is no flow nope", http.StatusNotFound)
	})
	server := http.Server{Handler: m}
	go server.Serve(l)
	t.Cleanup(func() { testenv.Check(t, server.Close()) })
	ctx := t.Context()
	for what, ask := range map[string]func(context.Context) error{
		"another method": func(ctx context.Context) error { _, err := GroupMembers(ctx, socket, "orders"); return err },
		"another path":   func(ctx context.Context) error { _, err := RestartFlow(ctx, socket, "orders"); return err },
		"events":         func(ctx context.Context) error { return Events(ctx, socket, nil) },
	} {
		older, is := errors.AsType[*UnknownError](ask(ctx))
		if !is || older.Version != "0.0.9" || !strings.Contains(older.Error(), "the daemon is of version 0.0.9, which does not know this request") {
			t.Errorf("%s: %v", what, ask(ctx))
		}
	}
	if _, err := StopFlow(ctx, socket, "nope"); err == nil || err.Error() != "there is no flow nope" {
		t.Errorf("a handler's refusal: %v", err)
	}
}
