package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestStatusSummary: the summary has one line a flow, and then what is wrong, with the remedy.
func TestStatusSummary(t *testing.T) {
	s := &status.Daemon{PID: 7, Started: time.Now(), Region: status.Region{Ordinary: true}, Flows: []status.Flow{
		{Name: "good", Kind: "network-storage", State: status.Running, From: "eth1", To: "/d/good", PPS: 3000, BPS: 25e6, Engine: "xdp"},
		{Name: "losing", Kind: "network-storage", State: status.Running, From: "eth2", To: "/d/losing", Dropped: map[string]uint64{"lost_ring_full": 12}, LostAt: time.Now()},
		{Name: "ill", Kind: "rdma-storage", State: status.Failed, Error: "line 1\nline 2", From: "roce:eth3", To: "/d/ill"},
	}}
	var out strings.Builder
	testenv.Must(t, printSummary(&out, s))
	for _, want := range []string{
		"\nFLOW    STATE    RATE                         LOST  FROM → TO\n",
		"\ngood    running  3000 packets/s, 25.0 Mbit/s  0     eth1 → /d/good\n",
		"\nill     failed   -                            0     roce:eth3 → /d/ill\n",
		"\n\nthe daemon: the region is on ordinary pages: every device is slower\n  unifiedd doctor prints",
		"\n\nflow losing has lost 12 (lost_ring_full): the worker came too late to the ring (the last 0s ago)\n  use a larger from.ring",
		"\n\nflow ill has failed: line 1\n  line 2\n  mend what unifiedd status says, and unifiedd start ill\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the summary does not have %q:\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "flow good has") {
		t.Errorf("the summary has a problem of a flow without one:\n%s", &out)
	}
}

// TestJudge: the statuses for a monitor. What was lost long ago is no warning any more.
func TestJudge(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		flow status.Flow
		want int
		says string
	}{
		"runs":    {status.Flow{State: status.Running}, 0, ""},
		"done":    {status.Flow{State: status.Done}, 0, ""},
		"stopped": {status.Flow{State: status.Stopped}, checkWarning, "is stopped"},
		"loses":   {status.Flow{State: status.Running, Dropped: map[string]uint64{"buffer_full": 3}, LostAt: now.Add(-time.Minute)}, checkWarning, "has lost 3 (buffer_full)"},
		"lost":    {status.Flow{State: status.Running, Dropped: map[string]uint64{"buffer_full": 3}, LostAt: now.Add(-time.Hour)}, 0, ""},
		"waits":   {status.Flow{State: status.Waiting, Error: "no space left"}, checkCritical, "waits: no space left"},
		"failed":  {status.Flow{State: status.Failed, Error: "gone"}, checkCritical, "has failed: gone"},
	} {
		if got, what := judge(&c.flow, now, nil); got != c.want || !strings.Contains(strings.Join(what, "; "), c.says) || got == 0 && what != nil {
			t.Errorf("%s: %d, %q", name, got, what)
		}
	}
}

// TestStatusOfFlow: status of a flow has all of that flow, also as JSON. The socket comes from the environment, too.
func TestStatusOfFlow(t *testing.T) {
	s := startServed(t)
	s.start(t)
	t.Setenv(socketVariable, s.socket)
	ask := func(want int, args ...string) string {
		t.Helper()
		var out, errs strings.Builder
		if code := run(append([]string{"status"}, args...), &out, &errs); code != want {
			t.Errorf("status %q ends with %d: %s%s", args, code, &out, &errs)
		}
		return out.String() + errs.String()
	}
	if text := ask(0); strings.Contains(text, "  kept  ") || !strings.Contains(text, "\ncap   running  ") {
		t.Errorf("the summary: %s", text)
	}
	if text := ask(0, "cap"); !strings.Contains(text, "  kept  ") || strings.Contains(text, "registered") {
		t.Errorf("of the flow: %s", text)
	}
	if text := ask(0, "-o", "wide"); !strings.Contains(text, "  kept  ") || !strings.Contains(text, "registered") {
		t.Errorf("wide: %s", text)
	}
	var one status.Flow
	if err := json.Unmarshal([]byte(ask(0, "-o", "json", "cap")), &one); err != nil || one.Name != "cap" || one.State != status.Running {
		t.Errorf("as JSON: %+v, %v", one, err)
	}
	if text := ask(exitFailed, "nope"); !strings.Contains(text, `there is no flow "nope" (there is: cap)`) {
		t.Errorf("of none: %s", text)
	}
	ask(exitUsage, "-o", "xml")
	if text := ask(0, "--check"); text != "OK: 1 flow without a problem\n" {
		t.Errorf("check: %s", text)
	}
	var code int
	if code = run([]string{"stop", "cap"}, new(strings.Builder), new(strings.Builder)); code != 0 {
		t.Errorf("stop ends with %d", code)
	}
	if text := ask(checkWarning, "--check", "cap"); text != "WARNING: flow cap is stopped\n" {
		t.Errorf("check of a flow that is stopped: %s", text)
	}
	ask(checkUnknown, "--check", "nope")
	t.Setenv(socketVariable, s.socket+".none")
	if text := ask(checkCritical, "--check"); !strings.HasPrefix(text, "CRITICAL: ask the daemon: ") {
		t.Errorf("check without a daemon: %s", text)
	}
}

// TestStatusWatch: the status is printed again and again until the context ends.
func TestStatusWatch(t *testing.T) {
	s := startServed(t)
	s.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	f, out := statusFlags{socket: s.socket, output: outputText}, &lines{}
	ended := make(chan error, 1)
	go func() { ended <- f.repeat(ctx, out, "") }()
	testenv.Wait(t, testenv.Within(20*time.Second), "two tables", func() bool {
		out.mu.Lock()
		defer out.mu.Unlock()
		return strings.Count(out.said.String(), "FLOW") >= 2
	})
	cancel()
	testenv.Must(t, <-ended)
}
