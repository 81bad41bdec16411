package control

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestHost: at a loopback address only requests that name it are answered, so that a page of the web whose name resolves to
// it reads nothing. At another address the daemon does not know its names.
func TestHost(t *testing.T) {
	h := checkHost(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") }))
	ask := func(at, host string) int {
		r := httptest.NewRequest("GET", "/events", nil)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.ParseIP(at), Port: 9300}))))
		return w.Code
	}
	for _, host := range []string{"127.0.0.1:9300", "127.0.0.1", "[::1]:9300", "[::1]", "localhost:9300", "LOCALHOST.", "", "192.0.2.1:9300"} {
		if code := ask("127.0.0.1", host); code != http.StatusOK {
			t.Errorf("%q is answered with %d", host, code)
		}
	}
	for _, at := range []string{"127.0.0.1", "::1"} {
		for _, host := range []string{"evil.example:9300", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:9300", "1.evil.example"} {
			if code := ask(at, host); code != http.StatusMisdirectedRequest {
				t.Errorf("at %s %q is answered with %d", at, host, code)
			}
		}
	}
	if code := ask("192.0.2.1", "capture.example:9300"); code != http.StatusOK {
		t.Errorf("at another address it is answered with %d", code)
	}
}

// TestTurns: of each host one request is answered at once, and of all hosts some. What a host asks for beside that keeps no
// other one waiting.
func TestTurns(t *testing.T) {
	var busy, most atomic.Int64
	begun, release := make(chan string, 100), make(chan bool)
	h := newTurns()
	handler := h.limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		most.Store(max(most.Load(), busy.Add(1)))
		begun <- r.RemoteAddr
		<-release
		busy.Add(-1)
	}))
	var all []chan bool
	ask := func(ctx context.Context, from string) {
		ended := make(chan bool)
		all = append(all, ended)
		r := httptest.NewRequest("GET", "/metrics", nil).WithContext(ctx)
		r.RemoteAddr = from
		go func() { handler.ServeHTTP(httptest.NewRecorder(), r); close(ended) }()
	}
	gone, leave := context.WithCancel(t.Context())
	for range 20 {
		ask(gone, "10.0.0.1:1")
	}
	if first := <-begun; first != "10.0.0.1:1" {
		t.Fatal(first)
	}
	for i := 2; i <= mostScrapes; i++ {
		from := fmt.Sprintf("10.0.0.%d:1", i)
		ask(t.Context(), from)
		if next := <-begun; next != from {
			t.Fatalf("beside the requests of another host, %s is answered before %s", next, from)
		}
	}
	ask(t.Context(), "10.0.0.99:1")
	testenv.Wait(t, time.Minute, "the request to wait", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.hosts) == mostScrapes+1 })
	leave() // the first host's requests that wait
	close(release)
	for _, one := range all {
		<-one
	}
	if n := most.Load(); n != mostScrapes {
		t.Errorf("%d requests were answered at once, and not %d", n, mostScrapes)
	}
	if len(h.hosts) != 0 {
		t.Errorf("left: %v", h.hosts)
	}
}
