package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/metrics"
	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/status"
)

// servers answers about a daemon: metrics and health on TCP, and everything,
// profiles and control included, on a unix socket that only its owner reaches.
type servers struct{ all []*http.Server }

// serve starts listening where the configuration says.
func serve(d *flows.Daemon, r *reloader, listen, socket string) (*servers, error) {
	s := &servers{}
	control, err := listenUnix(socket)
	if err != nil {
		return nil, err
	}
	s.start(control, controlHandler(d, r), 0) // a profile takes as long as it is asked to
	if listen == "" {
		return s, nil
	}
	public, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve metrics: %w (choose another address in metrics.listen)", err), s.Close())
	}
	s.start(newBoundListener(public), publicHandler(d, briefly), 30*time.Second)
	return s, nil
}

// start serves a listener. An answer may take so long to be sent; 0 means for ever.
func (s *servers) start(l net.Listener, h http.Handler, write time.Duration) {
	one := &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: write,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
	s.all = append(s.all, one)
	go one.Serve(l)
}

// Close ends all connections; the socket goes with its listener.
func (s *servers) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var errs []error
	for _, one := range s.all {
		if err := one.Shutdown(ctx); err != nil {
			errs = append(errs, one.Close())
		}
	}
	return errors.Join(errs...)
}

// indexPage names the pages of the metrics port.
const indexPage = `<!doctype html>
<title>unifiedd</title>
<h1>unifiedd</h1>
<ul>
<li><a href="/metrics">/metrics</a>: counters, in Prometheus' format
<li><a href="/healthz">/healthz</a>: says ok while the daemon runs
<li><a href="/readyz">/readyz</a>: says ready, or which flows are not
</ul>
`

// publicHandler answers what anybody on the network may know. say puts into words what
// keeps a flow from being ready.
func publicHandler(d *flows.Daemon, say func(*status.Flow) string) *http.ServeMux {
	m := http.NewServeMux()
	m.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, indexPage)
	})
	m.Handle("GET /metrics", promhttp.HandlerFor(metrics.NewRegistry(d), promhttp.HandlerOpts{}))
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	m.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		var why []string
		for _, f := range d.Unready() {
			why = append(why, say(&f))
		}
		if why != nil {
			http.Error(w, strings.Join(why, "\n"), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	return m
}

// briefly is a flow's state. Why it is so may name files and devices, which is for its
// owner only.
func briefly(f *status.Flow) string { return fmt.Sprintf("flow %s is %s", f.Name, f.State) }

// fully is a flow's state, and why it is so.
func fully(f *status.Flow) string {
	if f.Error == "" {
		return briefly(f)
	}
	return briefly(f) + ": " + f.Error
}

func controlHandler(d *flows.Daemon, r *reloader) *http.ServeMux {
	m := publicHandler(d, fully)
	m.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(d.Status()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	m.HandleFunc("POST /flows/{name}/start", onFlow(d, startOne))
	m.HandleFunc("POST /flows/{name}/stop", onFlow(d, stopOne))
	m.HandleFunc("POST /reload", answerReload(r))
	m.HandleFunc("POST /plan", answerPlan(r))
	m.HandleFunc("GET /debug/pprof/", pprof.Index)
	m.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	m.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	m.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	m.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return m
}
