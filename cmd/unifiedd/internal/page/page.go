package page

import (
	"bytes"
	"embed"
	"encoding/json"
	"net/http"
	"net/netip"
	"path"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/recent"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/addrlimit"
)

//go:embed web
var web embed.FS

// period is the time between two documents, if making one and sending it to all pages takes a part in share of it at
// most. Otherwise it is as long as that takes: a daemon with thousands of flows renews its pages less often.
const (
	period = time.Second
	share  = 100
)

// sending is what it takes to send a byte to a page: the system call copies it, and the page's own host may be this one.
const sending = time.Nanosecond

// viewers is the number of pages that get documents at the same time, and hostViewers how many of those one host has. The
// newest replaces the oldest of its host, or of the host that has the most: nobody keeps others from looking. Connections
// are limited, too.
const viewers, hostViewers = 32, 16

// viewer is a page that gets documents.
type viewer struct{ replaced chan struct{} }

// policy forbids the page everything but its own script, style sheet and events.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Server serves the page about a daemon. The zero value is not usable.
type Server struct {
	status func() status.Daemon
	before *History        // nil: none
	recent *recent.Handler // nil: no messages
	who    Audience

	mu   sync.Mutex
	made time.Time     // when text was made
	text []byte        // the newest event
	cost time.Duration // of processor time, of making it
	open *addrlimit.Set[*viewer]
	done chan struct{}
	once sync.Once
}

// New returns a server for a daemon's status. before and r may be nil.
func New(daemon func() status.Daemon, before *History, r *recent.Handler, who Audience) *Server {
	return &Server{status: daemon, before: before, recent: r, who: who, open: addrlimit.New[*viewer](viewers, hostViewers), done: make(chan struct{})}
}

// Close ends the events of all pages. They try to connect again.
func (s *Server) Close() { s.once.Do(func() { close(s.done) }) }

// files are the files of the page, by path.
var files = map[string]struct{ name, kind string }{
	"/":            {"page.html", "text/html; charset=utf-8"},
	"/page.css":    {"page.css", "text/css; charset=utf-8"},
	"/page.js":     {"page.js", "text/javascript; charset=utf-8"},
	"/favicon.ico": {"icon.svg", "image/svg+xml"},
}

// Register adds the page to a mux.
func (s *Server) Register(m *http.ServeMux) {
	for at, f := range files {
		if at == "/" {
			at = "/{$}"
		}
		m.HandleFunc("GET "+at, func(w http.ResponseWriter, _ *http.Request) {
			text, err := web.ReadFile(path.Join("web", f.name))
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			protect(w)
			w.Header().Set("Content-Type", f.kind)
			_, _ = w.Write(text) // an error means that the client has gone
		})
	}
	m.HandleFunc("GET /events", s.events)
}

func protect(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
}

// events sends a document each second until the page is closed. A page that does not take one in time is cut
// off.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	from, _ := netip.ParseAddrPort(r.RemoteAddr) // of the control socket there is no address
	v := s.enter(addrlimit.Host(from.Addr()))
	defer s.leave(v)
	protect(w)
	w.Header().Set("Content-Type", "text/event-stream")
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{}) // the server's would end the request; not every writer has one
	for {
		text, err := s.event(time.Now())
		if err != nil {
			return
		}
		_ = c.SetWriteDeadline(time.Now().Add(10 * period)) // not every writer has one
		if _, err := w.Write(text); err != nil {
			return
		}
		if err := c.Flush(); err != nil {
			return
		}
		select {
		case <-time.After(s.pause()):
		case <-s.done:
			return
		case <-v.replaced:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// enter adds a page of a host. If there are too many, another one gets no more events.
func (s *Server) enter(host netip.Prefix) *viewer {
	v := &viewer{make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if limit, rivals := s.open.Full(host); limit != addrlimit.None {
		s.open.Remove(rivals[0])
		close(rivals[0].replaced)
	}
	s.open.Add(v, host)
	return v
}

func (s *Server) leave(v *viewer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open.Remove(v) // it may have been replaced
}

// pause returns the time until the next document.
func (s *Server) pause() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.between()
}

// between is the time between two documents, with mu held.
func (s *Server) between() time.Duration {
	return max(period, share*(s.cost+sending*time.Duration(len(s.text)*s.open.Len())))
}

// event returns the newest event, which it makes if the last one is old.
func (s *Server) event(now time.Time) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text != nil && now.Sub(s.made) < s.between()/2 {
		return s.text, nil
	}
	runtime.LockOSThread() // of which the processor time is measured: others may keep the machine busy
	defer runtime.UnlockOSThread()
	begun := used()
	of := s.status()
	b := bytes.NewBuffer(make([]byte, 0, len(s.text)+len(s.text)/8+512)) // pages may still be sent the last one
	b.WriteString("data: ")
	if err := json.NewEncoder(b).Encode(Make(&of, s.before, s.recent.Messages(), s.who, now)); err != nil {
		return nil, err
	}
	b.WriteByte('\n') // Encode has ended the line
	s.text, s.made, s.cost = b.Bytes(), now, besides*(used()-begun)
	return s.text, nil
}

// besides is by how much the thread's own time is less than what a document takes: disks are looked at on other threads,
// and the garbage collector runs there.
const besides = 3

// used returns the processor time of the thread so far.
func used() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &u) // does not fail for the thread itself
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
