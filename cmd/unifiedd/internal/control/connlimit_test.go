package control

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestMetricsBound: the server closes silent connections, and they do not block a scraper.
func TestMetricsBound(t *testing.T) {
	testenv.Leaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testenv.Must(t, err)
	s := &Server{}
	bound := newLimitedListener(l)
	s.start(bound, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "here") }), time.Minute, func() {})
	defer s.Close()
	var idle []net.Conn
	for range 4 * maxScrapersPerHost {
		c, err := net.Dial("tcp", l.Addr().String())
		testenv.Must(t, err)
		defer c.Close()
		idle = append(idle, c)
	}
	client := http.Client{Timeout: testenv.Within(10 * time.Second), Transport: &http.Transport{DisableKeepAlives: true}}
	got, err := client.Get("http://" + l.Addr().String())
	testenv.Mustf(t, err, "beside %d idle connections", len(idle))
	got.Body.Close()
	bound.mu.Lock()
	open := bound.open.Len()
	bound.mu.Unlock()
	if open > maxScrapersPerHost {
		t.Errorf("%d connections of one host are open; at most %d may be", open, maxScrapersPerHost)
	}
	last := idle[len(idle)-1]
	last.SetReadDeadline(time.Now().Add(testenv.Within(20 * time.Second)))
	if _, err := io.ReadAll(last); err != nil {
		t.Errorf("a connection that says nothing stays: %v", err)
	}
}
