package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// completions returns what a shell is offered behind some words.
func completions(t *testing.T, words ...string) (names []string) {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "unifiedd"), append([]string{"__complete"}, words...)...).Output()
	testenv.Mustf(t, err, "%q", words)
	for line := range strings.Lines(string(out)) {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); !strings.HasPrefix(name, ":") { // not the directive
			names = append(names, name)
		}
	}
	return names
}

// TestCompletions: a shell is offered the flows of the daemon that runs, those of the flight recorder also when it is gone,
// and interfaces. A daemon that is not there is no error.
func TestCompletions(t *testing.T) {
	testenv.Root(t)
	d := startTraced(t, "")
	offered := func(want []string, words ...string) {
		t.Helper()
		if got := completions(t, words...); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", words, got, want)
		}
	}
	both := []string{"nowhere", "recorded"}
	offered(both, "stop", "--socket", d.socket, "")
	offered(both, "start", "--socket", d.socket, "")
	offered(nil, "stop", "--socket", d.socket, "nowhere", "")
	offered(nil, "group", "status", "--socket", d.socket, "")
	offered([]string{"all"}, "orders", "stop", "--socket", d.socket, "")
	for _, words := range [][]string{{"capture", "-i", ""}, {"doctor", "-i", ""}, {"replay", "-i", ""}, {"tune", ""}} {
		if got := completions(t, words...); !slices.Contains(got, "lo") {
			t.Errorf("%q: %q without lo", words, got)
		}
	}
	testenv.Must(t, d.Process.Kill())
	_ = d.Wait() // it was killed
	offered(nil, "stop", "--socket", d.socket, "")
	offered(both, "trace", "--socket", d.socket, "")
}
