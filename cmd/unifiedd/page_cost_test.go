package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/page"
	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/pairs"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// moved is how many packets all flows have moved, and what processor time their process has used.
type moved struct {
	Packets uint64        `json:"packets"`
	CPU     time.Duration `json:"cpu_ns"`
	Time    time.Time     `json:"time"`
}

// manyFlows runs the daemon of a configuration, with a page that has so many flows: arguments are the file, the socket and
// the number. The daemon's flows are there again and again, with other names. Each is observed anew, so that a document
// costs what it costs a daemon that has so many. It ends with its standard input.
func manyFlows() {
	if err := runMany(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runMany(file, socket, number string) error {
	count, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	c, err := config.Parse(file, text, config.Options{})
	if err != nil {
		return err
	}
	d, err := flows.Open(c, flows.Options{Version: "many", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Start(); err != nil {
		return err
	}
	all := d.Flows()
	many := func() status.Daemon {
		s := d.Status()
		for i := len(s.Flows); i < count; i++ {
			one := all[i%len(all)].Status()
			one.Name = fmt.Sprintf("%s-%05d", one.Name, i)
			s.Flows = append(s.Flows, one)
		}
		return s
	}
	m := http.NewServeMux()
	p := page.New(many, nil, page.Owner)
	p.Register(m)
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	m.HandleFunc("GET /moved", func(w http.ResponseWriter, _ *http.Request) {
		var u unix.Rusage
		_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // does not fail for the process itself
		now := moved{CPU: time.Duration(u.Utime.Nano() + u.Stime.Nano()), Time: time.Now()}
		for _, f := range all {
			now.Packets += f.Status().Packets
		}
		_ = json.NewEncoder(w).Encode(now)
	})
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: m}
	go func() { _ = server.Serve(l) }() // it ends with the process
	fmt.Println("serving")
	_, err = io.Copy(io.Discard, os.Stdin)
	p.Close()
	return err
}

// many is that program.
type many struct {
	t      *testing.T
	socket string
}

// startMany starts a daemon with a flow for each processor that moves as many packets as it can, so that whatever else
// the processors do costs packets, and one to a disk.
func startMany(t *testing.T, count int) *many {
	t.Helper()
	testenv.HugePages(t, 160<<20)
	dir := t.TempDir()
	m := &many{t, filepath.Join(dir, "control.sock")}
	file := filepath.Join(dir, "many.yaml")
	workers, fast := "{name: other}", ""
	for i := range runtime.NumCPU() {
		workers += fmt.Sprintf(", {name: fast-%d}", i)
		fast += fmt.Sprintf("  - {name: fast-%d, worker: fast-%[1]d, from: {generate: 512}, to: {discard: true}}\n", i)
	}
	text := fmt.Sprintf(`region: {size: 128MiB}
workers: [%s]
flows:
%s  - {name: disk, worker: other, from: {generate: 512, rate: 1000}, to: {file: %s, segment: {size: 16MiB, keep: 2}}}
`, workers, fast, filepath.Join(testenv.DiskDir(t), "disk"))
	testenv.Must(t, os.WriteFile(file, []byte(text), 0o600))
	c := exec.Command(testenv.Tool(t, "many-flows"), file, m.socket, strconv.Itoa(count))
	in, err := c.StdinPipe()
	testenv.Must(t, err)
	out, err := c.StdoutPipe()
	testenv.Must(t, err)
	c.Stderr = os.Stderr
	testenv.Must(t, c.Start())
	t.Cleanup(func() { in.Close(); _ = c.Wait() })
	if said, err := bufio.NewReader(out).ReadString('\n'); err != nil || said != "serving\n" {
		t.Fatalf("it says %q, %v", said, err)
	}
	return m
}

// moved asks how far the flows are.
func (m *many) moved() (now moved) {
	m.t.Helper()
	text, err := control.Page(m.t.Context(), m.socket, "/moved")
	if err == nil {
		err = json.Unmarshal([]byte(text), &now)
	}
	testenv.Must(m.t, err)
	return now
}

// rate measures packets a second of all flows, and the processors' time of the process in a second, over a span that
// begins with what begin does.
func (m *many) rate(span time.Duration, begin func()) (rate, cpu float64) {
	m.t.Helper()
	before := m.moved()
	begin()
	time.Sleep(span - time.Since(before.Time))
	after := m.moved()
	took := after.Time.Sub(before.Time).Seconds()
	return float64(after.Packets-before.Packets) / took, (after.CPU - before.CPU).Seconds() / took
}

// reader is something that shows documents.
type reader struct {
	documents, bytes atomic.Int64
	stop             func()
}

// reads begins to read the page's events as a browser does, but for drawing.
func (m *many) reads() *reader {
	ctx, cancel := context.WithCancel(m.t.Context())
	r, done := new(reader), make(chan struct{})
	go func() {
		defer close(done)
		_ = control.Events(ctx, m.socket, func(text []byte) error { // it ends with ctx
			r.documents.Add(1)
			r.bytes.Add(int64(len(text)))
			return nil
		})
	}()
	r.stop = func() { cancel(); <-done }
	testenv.Wait(m.t, testenv.Within(time.Minute), "a document", func() bool { return r.documents.Load() > 0 })
	return r
}

// tops begins to show them in a terminal.
func (m *many) tops() *reader {
	m.t.Helper()
	term, end := newTerminal(m.t)
	c := exec.Command(testenv.Tool(m.t, "unifiedd"), "top", "--socket", m.socket)
	c.Stdin, c.Stdout, c.Stderr = end, end, end
	c.Env = append(os.Environ(), "TERM=xterm-256color")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	testenv.Must(m.t, c.Start())
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	testenv.Wait(m.t, testenv.Within(time.Minute), "the flows in the terminal", func() bool { return strings.Contains(term.said(), "flows run") })
	return &reader{stop: sync.OnceFunc(func() {
		term.press(m.t, "q")
		if err := <-ended; err != nil {
			m.t.Errorf("top ends with %v", err)
		}
		var u syscall.Rusage
		if r, ok := c.ProcessState.SysUsage().(*syscall.Rusage); ok {
			u = *r
		}
		m.t.Logf("top used %v of processor time", time.Duration(u.Utime.Nano()+u.Stime.Nano()).Round(time.Millisecond))
	})}
}

// TestPageCost compares the rate of flows while nobody looks with that while a page, or unifiedd top, shows as many flows
// as UNIFIEDD_FLOWS says (1000), in UNIFIEDD_PAIRS pairs (1) of UNIFIEDD_SECONDS (3) each. With five pairs or more it may
// cost 1 % at most.
func TestPageCost(t *testing.T) {
	testenv.Root(t)
	testenv.Long(t, "it measures")
	setting := func(name, otherwise string) int {
		n, err := strconv.Atoi(cmp.Or(os.Getenv(name), otherwise))
		if err != nil || n < 1 {
			t.Fatalf("%s=%s: it must be a number", name, os.Getenv(name))
		}
		return n
	}
	count, rounds, span := setting("UNIFIEDD_FLOWS", "1000"), setting("UNIFIEDD_PAIRS", "1"), time.Duration(setting("UNIFIEDD_SECONDS", "3"))*time.Second
	m := startMany(t, count)
	for _, c := range []struct {
		name  string
		begin func() *reader
	}{{"page", m.reads}, {"top", m.tops}} {
		t.Run(c.name, func(t *testing.T) {
			m.t = t
			m.compare(c.begin, rounds, span)
		})
	}
}

func (m *many) compare(begin func() *reader, rounds int, span time.Duration) {
	t := m.t
	var rates pairs.Pairs
	for i := range rounds {
		var p pairs.Pair
		var with, without float64
		err := pairs.Round(i, func() error { p.Theirs, without = m.rate(span, func() {}); return nil }, func() error {
			var r *reader
			p.Ours, with = m.rate(span, func() { r = begin() })
			r.stop()
			if n := r.documents.Load(); n > 0 { // top does not count them
				t.Logf("%d documents of %d bytes", n, r.bytes.Load()/n)
			}
			return nil
		})
		testenv.Must(t, err)
		rates = append(rates, p)
		t.Logf("pair %d: %.0f packets a second while nobody looks, %.0f while somebody does; the daemon used %.3f and %.3f processors", i+1, p.Theirs, p.Ours, without, with)
	}
	e := rates.Estimate()
	t.Logf("%d pairs of %v: %.4f times the rate (%.4f to %.4f)", rounds, span, e.Ratio, e.Low, e.High)
	if rounds >= 5 && e.Ratio < 0.99 {
		t.Errorf("the rate while somebody looks is %.4f of that while nobody does", e.Ratio)
	}
}
