package control

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
	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/page"
	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/member"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/netdev"
)

// Server answers requests about a daemon: metrics and health on TCP, and
// everything, profiles and control included, on a UNIX socket that only its owner
// reaches. Any goroutine may use it.
type Server struct {
	all     []*http.Server
	history *page.History
}

// Serve answers requests about the reloader's daemon. It listens on the control socket, and on a
// TCP address for metrics unless listen is empty.
func Serve(r *Reloader, listen, socket string) (*Server, error) {
	s := &Server{}
	control, err := listenUnix(socket)
	if err != nil {
		return nil, err
	}
	s.history = page.NewHistory(r.Daemon.Status)
	own := page.New(r.Daemon.Status, s.history, r.Recent, page.Owner)
	s.start(control, controlHandler(r, own), 0, own.Close) // a profile takes as long as the client asks for
	if listen == "" {
		return s, nil
	}
	public, err := netdev.Listen(context.Background(), &net.ListenConfig{}, listen)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("serve metrics: %w (choose another address in metrics.listen)", err), s.Close())
	}
	theirs := page.New(r.Daemon.Status, s.history, r.Recent, page.Public)
	s.start(newLimitedListener(public), checkHost(publicHandler(r.Daemon, theirs)), 30*time.Second, theirs.Close)
	return s, nil
}

// start serves a listener. write limits how long an answer takes; 0: no limit. end ends answers that go on until
// the client leaves.
func (s *Server) start(l net.Listener, h http.Handler, write time.Duration, end func()) {
	one := &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: write,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
	one.RegisterOnShutdown(end)
	s.all = append(s.all, one)
	go one.Serve(l)
}

// Close closes the listeners and removes the socket. Requests have a second to end.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.history.Close()
	var errs []error
	for _, one := range s.all {
		if err := one.Shutdown(ctx); err != nil {
			errs = append(errs, one.Close())
		}
	}
	return errors.Join(errs...)
}

// publicHandler answers requests that anyone on the network may make: metrics and health. It
// reports the state of a flow, but not the error, which may name files and devices.
func publicHandler(d *flows.Daemon, p *page.Server) http.Handler { return newMux(d, p, state) }

// newMux returns the pages of both listeners. describe says why a flow is not ready.
func newMux(d *flows.Daemon, p *page.Server, describe func(*status.Flow) string) *http.ServeMux {
	m := http.NewServeMux()
	p.Register(m)
	m.Handle("GET /metrics", newTurns().limit(promhttp.HandlerFor(metrics.NewRegistry(d), promhttp.HandlerOpts{})))
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	m.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		var reasons []string
		for _, f := range d.Unready() {
			reasons = append(reasons, describe(&f))
		}
		if reasons != nil {
			http.Error(w, strings.Join(reasons, "\n"), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	return m
}

// state returns the name and state of a flow.
func state(f *status.Flow) string { return fmt.Sprintf("flow %s is %s", f.Name, f.State) }

// stateAndError returns the name and state of a flow, and its error.
func stateAndError(f *status.Flow) string {
	if f.Error == "" {
		return state(f)
	}
	return state(f) + ": " + f.Error
}

// controlHandler answers the owner of the socket.
func controlHandler(r *Reloader, p *page.Server) *http.ServeMux {
	d := r.Daemon
	m := newMux(d, p, stateAndError)
	m.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(d.Status()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	m.HandleFunc("POST /flows/{name}/start", handleFlow(d, start))
	m.HandleFunc("POST /flows/{name}/stop", handleFlow(d, stop))
	m.HandleFunc("POST /flows/{name}/restart", handleFlow(d, restart))
	m.HandleFunc("POST /flows/{name}/group", handleSeat(d, changeGroup))
	m.HandleFunc("GET /flows/{name}/group", handleSeat(d, listMembers))
	m.HandleFunc("POST /orders/{name}/stop", handleOrders(d.StopOrders))
	m.HandleFunc("POST /orders/{name}/resume", handleOrders(d.ResumeOrders))
	m.HandleFunc("GET /cluster", handleRegistry(r))
	m.HandleFunc("POST /reload", handleReload(r))
	m.HandleFunc("POST /plan", handlePlan(r))
	m.HandleFunc("GET /debug/pprof/", pprof.Index)
	m.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	m.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	m.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	m.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return m
}

// start starts a flow unless it runs, waits until it has run for a moment, and says what came of it.
func start(ctx context.Context, f *flows.Flow) (done string, err error) {
	if s := f.Status(); s.State.Up() {
		return fmt.Sprintf("flow %s runs already", s.Name), nil
	}
	if err := f.Start(); err != nil {
		return "", err
	}
	if err := f.Outset(ctx); err != nil {
		return "", fmt.Errorf("flow %s started, and failed: %w", f.Name(), err)
	}
	s := f.Status()
	return stateAndError(&s), nil
}

// stop stops a flow if it runs, or is to start again by itself, and says what came of it.
func stop(_ context.Context, f *flows.Flow) (done string, err error) {
	if s := f.Status(); !s.State.Up() && s.NextStart.IsZero() {
		return stateAndError(&s) + ", and did not run", nil
	}
	return fmt.Sprintf("flow %s is stopped", f.Name()), f.Stop()
}

// restart stops a flow, if it runs, and starts it.
func restart(ctx context.Context, f *flows.Flow) (done string, err error) {
	if _, err := stop(ctx, f); err != nil {
		return "", err
	}
	return start(ctx, f)
}

// handleFlow returns a handler that applies do to the flow in the path, and answers what came of it.
func handleFlow(d *flows.Daemon, do func(context.Context, *flows.Flow) (string, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f, err := d.Flow(r.PathValue("name"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		done, err := do(r.Context(), f)
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		fmt.Fprintln(w, done)
	}
}

// handleSeat returns a handler that applies do to the seat that the flow in the path has in its group.
func handleSeat(d *flows.Daemon, do func(http.ResponseWriter, *http.Request, *member.Seat)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f, err := d.Flow(r.PathValue("name"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		seat, err := f.Seat()
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		do(w, r, seat)
	}
}

// changeGroup changes a group, and answers when that is done. The query has transfer, or add and remove: names of members.
func changeGroup(w http.ResponseWriter, r *http.Request, seat *member.Seat) {
	q, err := r.URL.Query(), error(nil)
	if to := q.Get("transfer"); to != "" {
		err = seat.Transfer(r.Context(), to)
	} else {
		err = seat.Change(r.Context(), q.Get("add"), q.Get("remove"))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

// listMembers answers with the members of a group, as its leader knows them, in a status.Members.
func listMembers(w http.ResponseWriter, r *http.Request, seat *member.Seat) {
	all, err := seat.Members(r.Context())
	m := status.Members{Members: all}
	if err != nil {
		m.Error = err.Error()
	}
	answer(w, &m, nil)
}

// handleOrders returns a handler that stops or resumes the orders of the flow in the path.
func handleOrders(do func(name string) ([]status.OrderStop, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		all, err := do(r.PathValue("name"))
		answer(w, all, err)
	}
}

// handleRegistry returns the handler that lists the daemons of the cluster.
func handleRegistry(r *Reloader) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		if r.Registry == nil {
			answer(w, nil, errors.New("the daemon finds no peers by their names (its configuration has no cluster.resolver)"))
			return
		}
		answer(w, r.Registry(q.Context()), nil)
	}
}

// handleReload returns the handler of a reload.
func handleReload(r *Reloader) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		s, err := r.Reload()
		answer(w, s, err)
	}
}

// handlePlan returns the handler of a plan. The query has the name of the file and the body its
// text; without a name it is the daemon's own file.
func handlePlan(r *Reloader) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		p, err := r.plan(q.URL.Query().Get("file"), http.MaxBytesReader(w, q.Body, maxConfigSize))
		answer(w, p, err)
	}
}

// maxConfigSize is the size of the largest accepted configuration, in bytes.
const maxConfigSize = 2 << 20

// answer sends a value as JSON, or an error. Mistakes in a configuration have their own status,
// since a command prints them unchanged.
func answer(w http.ResponseWriter, v any, err error) {
	mistakes := (*config.Errors)(nil)
	switch {
	case errors.As(err, &mistakes):
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	case err != nil:
		http.Error(w, err.Error(), http.StatusConflict)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v) // an error means that the client has gone
	}
}
