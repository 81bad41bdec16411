package control

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"

	"github.com/unifiedd/unifiedd/internal/addrlimit"
)

// checkHost refuses requests at a loopback address that name another host. A page of the web whose own name is made to
// resolve to the loopback address (DNS rebinding) would read the answers otherwise. At any other address whoever reaches it
// may ask, and scrapers have names for it that the daemon does not know.
func checkHost(h http.Handler) http.Handler {
	self, _ := os.Hostname() // empty: no name but the others
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok && at.IP.IsLoopback() && !names(r.Host, self) {
			http.Error(w, fmt.Sprintf("%q is no name of this address: ask for an IP address, localhost or the host's name", r.Host), http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// names reports whether the header Host of a request names this host: as an address, localhost or its name. A request of
// HTTP/1.0 need not have it.
func names(host, self string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return host == "" || host == "localhost" || host == strings.ToLower(self)
}

// mostScrapes is how many requests for metrics are answered at once.
const mostScrapes = 4

// turns limits the requests that are answered at once: one of each host, and some in all. Others wait, each host for itself
// and the hosts in the order in which they came, so that no host keeps the others from being answered.
type turns struct {
	all chan struct{} // has an element for each request that is answered

	mu    sync.Mutex
	hosts map[netip.Prefix]*turn
}

// turn is that of a host.
type turn struct {
	busy  chan struct{} // has an element while a request is answered or waits for turns.all
	users int           // requests; under turns.mu
}

func newTurns() *turns {
	return &turns{all: make(chan struct{}, mostScrapes), hosts: map[netip.Prefix]*turn{}}
}

// limit makes requests wait.
func (t *turns) limit(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, _ := netip.ParseAddrPort(r.RemoteAddr) // of the control socket there is no address
		host := addrlimit.Host(from.Addr())
		one := t.of(host)
		defer t.leave(host, one)
		if !enter(r.Context(), one.busy) {
			return
		}
		defer func() { <-one.busy }()
		if !enter(r.Context(), t.all) {
			return
		}
		made := answerMade{ResponseWriter: w}
		h.ServeHTTP(&made, r)
		<-t.all
		_, _ = w.Write(made.body.Bytes()) // an error means that the client has gone
	})
}

// answerMade keeps the body of an answer: a client that takes it slowly keeps no others waiting.
type answerMade struct {
	http.ResponseWriter
	body bytes.Buffer
}

func (a *answerMade) Write(p []byte) (int, error) { return a.body.Write(p) }

// enter waits for a place. It reports false if the client has gone.
func enter(ctx context.Context, places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t *turns) of(host netip.Prefix) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.hosts[host]
	if one == nil {
		one = &turn{busy: make(chan struct{}, 1)}
		t.hosts[host] = one
	}
	one.users++
	return one
}

func (t *turns) leave(host netip.Prefix, one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(t.hosts, host)
	}
}
