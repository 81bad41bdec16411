package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/metrics"
	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// served is a running daemon with its servers.
type served struct {
	*flows.Daemon
	pair   *testenv.Pair
	file   string // the configuration
	socket string
	client *http.Client
}

// reloader returns a reloader of the daemon.
func (s *served) reloader() *control.Reloader {
	return newReloader(s.Daemon, s.file, new(slog.LevelVar), slog.New(slog.DiscardHandler))
}

// startServed runs a flow on a veth pair and serves it.
func startServed(t *testing.T) *served {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	testenv.HugePages(t, 68<<20)
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	return serve(t, pair, func(dir string) string {
		return fmt.Sprintf(`
region: {size: 64MiB, extents: 8}
flows:
  - name: cap
    from: {interface: %s, ring: 512}
    to: {file: %s/cap, segment: {size: 16MiB}, flush: 50ms, durable: 100ms}
`, pair.B.Ifname, dir)
	})
}

// serve opens a daemon with a configuration, and serves it. Its flows start with start.
func serve(t *testing.T, pair *testenv.Pair, configuration func(dir string) string) *served {
	t.Helper()
	dir := testenv.DiskDir(t)
	s := &served{pair: pair, file: filepath.Join(dir, "test.yaml"), socket: filepath.Join(dir, "control.sock")}
	s.write(t, configuration(dir))
	cfg, err := loadConfig(s.file)
	testenv.Must(t, err)
	d, err := flows.Open(cfg, flows.Options{Version: "test", Log: slog.New(slog.DiscardHandler)})
	testenv.Must(t, err)
	t.Cleanup(func() {
		testenv.Check(t, d.Close())
	})
	s.Daemon = d
	servers, err := control.Serve(s.reloader(), "", s.socket)
	testenv.Must(t, err)
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		testenv.Check(t, servers.Close())
	})
	s.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.socket)
	}}}
	return s
}

// write writes the configuration file.
func (s *served) write(t *testing.T, text string) {
	t.Helper()
	testenv.Must(t, os.WriteFile(s.file, []byte(text), 0o600))
}

// start starts the flows in the pair's namespace.
func (s *served) start(t *testing.T) {
	t.Helper()
	var err error
	s.pair.B.Do(t, func() { err = s.Daemon.Start() })
	testenv.Must(t, err)
}

func (s *served) do(t *testing.T, method, path string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequest(method, "http://unifiedd"+path, nil)
	testenv.Must(t, err)
	answer, err := s.client.Do(request)
	testenv.Must(t, err)
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	testenv.Must(t, err)
	return answer.StatusCode, string(b)
}

func TestServe(t *testing.T) {
	s := startServed(t)
	if code, body := s.do(t, "GET", "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "flow cap is stopped") {
		t.Errorf("before the start, readyz: %d %s", code, body)
	}
	s.start(t)
	if code, body := s.do(t, "GET", "/readyz"); code != http.StatusOK {
		t.Errorf("readyz: %d %s", code, body)
	}
	if code, _ := s.do(t, "GET", "/healthz"); code != http.StatusOK {
		t.Errorf("healthz: %d", code)
	}
	info, err := os.Stat(s.socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the control socket is %v: %v", info.Mode(), err)
	}
	if _, err := control.Serve(s.reloader(), "", s.socket); err == nil || !strings.Contains(err.Error(), "another unifiedd answers") {
		t.Errorf("a second daemon on the socket: %v", err)
	}
}

func TestServeMetrics(t *testing.T) {
	s := startServed(t)
	s.start(t)
	testenv.SendRaw(t, &s.pair.A, testenv.Stream(&s.pair.A, &s.pair.B, 5000, 0, 200, 300), testenv.SendOptions{})
	testenv.Wait(t, 10*time.Second, "200 packets durable", func() bool { return s.Status().Flows[0].Durable.Packets == 200 })
	_, body := s.do(t, "GET", "/metrics")
	for _, want := range []string{
		`unifiedd_received_packets_total{flow="cap",interface="` + s.pair.B.Ifname + `"} 200`,
		`unifiedd_arrival_times{flow="cap",interface="` + s.pair.B.Ifname + `"} 1`,
		`unifiedd_durable_packets_total{flow="cap"} 200`,
		`unifiedd_waiting_packets{flow="cap"} 0`,
		`unifiedd_copied_bytes_total{flow="cap",reason="packed"} 60000`,
		`unifiedd_flow_up{flow="cap"} 1`,
		`unifiedd_disk_errors_total{flow="cap",reason="EIO"} 0`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("no %s in:\n%s", want, ours(body))
		}
	}
	if sum, frames := sumFrames(t, body), s.Region().Frames(); sum != frames {
		t.Errorf("unifiedd_frames adds up to %d of %d", sum, frames)
	}
	problems, err := testutil.GatherAndLint(metrics.NewRegistry(s.Daemon))
	testenv.Must(t, err)
	for _, p := range problems {
		t.Errorf("metric %s: %s", p.Metric, p.Text)
	}
}

// ours returns the lines of the metrics that are unifiedd's.
func ours(body string) string {
	var out []string
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "unifiedd_") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

func sumFrames(t *testing.T, body string) (sum int64) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^unifiedd_frames\{owner="\w+"\} (\S+)$`).FindAllStringSubmatch(body, -1) {
		v, err := strconv.ParseFloat(m[1], 64)
		testenv.Must(t, err)
		sum += int64(v)
	}
	return sum
}

func TestServeStatus(t *testing.T) {
	s := startServed(t)
	s.start(t)
	var out, errs bytes.Buffer
	if code := run([]string{"status", "--socket", s.socket, "--json"}, &out, &errs); code != 0 {
		t.Fatalf("status ends with %d: %s", code, errs.String())
	}
	var got status.Daemon
	testenv.Must(t, json.Unmarshal(out.Bytes(), &got))
	if got.PID != os.Getpid() || len(got.Flows) != 1 || got.Flows[0].State != status.Running {
		t.Errorf("status: %+v", got)
	}
	out.Reset()
	if code := run([]string{"status", "-o", "wide", "--socket", s.socket}, &out, &errs); code != 0 || !strings.Contains(out.String(), "flow cap") || !strings.Contains(out.String(), "  kept  ") {
		t.Errorf("status ends with %d: %s%s", code, out.String(), errs.String())
	}
}

func TestPrintHeld(t *testing.T) {
	oldest := time.Date(2026, 11, 20, 14, 0, 0, 25, time.UTC)
	var out bytes.Buffer
	printHeld(&out, &status.Usage{Segments: 6, Bytes: 6 << 21, Oldest: &oldest, Ring: &status.Ring{Slots: 7, SegmentBytes: 2 << 20, Generation: 33}})
	want := "  kept\t6 segments, 12 MiB with what is prepared, packets from 2026-11-20T14:00:00Z to -\n" +
		"  ring\t7 slots of 2MiB, in use up to generation 33\n"
	if out.String() != want {
		t.Errorf("%q, not %q", out.String(), want)
	}
}

// TestControl: the control commands stop a flow, and wrong requests are refused.
func TestControl(t *testing.T) {
	s := startServed(t)
	s.start(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"start", "cap"}, 0, "flow cap runs already\n"},
		{[]string{"stop", "nope"}, exitFailed, `there is no flow "nope" (there is: cap)`},
		{[]string{"start", "a/../b"}, exitFailed, `there is no flow "a/../b"`},
		{[]string{"stop", "cap"}, 0, "flow cap is stopped\n"},
		{[]string{"stop", "cap"}, 0, "flow cap is stopped, and did not run\n"},
		{[]string{"stop"}, exitUsage, "an argument is missing: unifiedd stop FLOW"},
		{[]string{"start", "cap"}, exitFailed, s.pair.B.Ifname}, // the interface is in another namespace
		{[]string{"restart", "cap"}, exitFailed, s.pair.B.Ifname},
		{[]string{"stop", "cap"}, 0, "flow cap is failed: start flow cap: "},
	} {
		var out, errs bytes.Buffer
		args := append(c.args, "--socket", s.socket)
		if code := run(args, &out, &errs); code != c.code || !strings.Contains(out.String()+errs.String(), c.want) || (code == 0) != (errs.Len() == 0) {
			t.Errorf("%v ends with %d: %s%s", c.args, code, out.String(), errs.String())
		}
	}
	if got := s.Status().Flows[0].State; got != status.Failed {
		t.Errorf("the flow is %s", got)
	}
}

func TestStatusWithoutDaemon(t *testing.T) {
	var out, errs bytes.Buffer
	code := run([]string{"status", "--socket", filepath.Join(t.TempDir(), "none")}, &out, &errs)
	if code != exitFailed || !strings.Contains(errs.String(), "does it run") {
		t.Errorf("status ends with %d: %s", code, errs.String())
	}
}
