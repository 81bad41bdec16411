package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/unifiedd/unifiedd/flows"
)

// servers answers about a daemon: metrics and health on TCP, and everything,
// profiles and control included, on a unix socket that only its owner reaches.
type servers struct{ all []*http.Server }

// serve starts listening where the configuration says.
func serve(d *flows.Daemon, listen, socket string) (*servers, error) {
	s := &servers{}
	control, err := listenUnix(socket)
	if err != nil {
		return nil, err
	}
	s.start(control, controlHandler(d))
	if listen == "" {
		return s, nil
	}
	public, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve metrics: %w (choose another address in metrics.listen)", err), s.Close())
	}
	s.start(public, publicHandler(d))
	return s, nil
}

func (s *servers) start(l net.Listener, h http.Handler) {
	one := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
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

func publicHandler(d *flows.Daemon) *http.ServeMux {
	m := http.NewServeMux()
	m.Handle("GET /metrics", promhttp.HandlerFor(newRegistry(d), promhttp.HandlerOpts{}))
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	m.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := d.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	return m
}

func controlHandler(d *flows.Daemon) *http.ServeMux {
	m := publicHandler(d)
	m.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(d.Status()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	m.HandleFunc("POST /flows/{name}/start", onFlow(d, (*flows.Flow).Start))
	m.HandleFunc("POST /flows/{name}/stop", onFlow(d, (*flows.Flow).Stop))
	m.HandleFunc("GET /debug/pprof/", pprof.Index)
	m.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	m.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	m.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	m.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return m
}

// onFlow makes a handler that does something to the flow in its path.
func onFlow(d *flows.Daemon, do func(*flows.Flow) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f, err := d.Flow(r.PathValue("name"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		if err := do(f); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	}
}
