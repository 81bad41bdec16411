package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/selftests/lab/vm"
)

// TestAttempts: after a fault of the guest or a time-out, the tests that had not ended run again, until a second fault
// happens at the same test. A failed test does not run again.
func TestAttempts(t *testing.T) {
	tests := []string{"TestA", "TestB", "TestC"}
	hung := fmt.Errorf("%w: for 15 minutes", vm.ErrHung)
	failed := fmt.Errorf("it %w", errOurs)
	for _, c := range []struct {
		name    string
		retries int
		output  string
		err     error
		want    string // the tests of the next attempt
	}{
		{"passed", 0, "--- PASS: TestA (0s)\n--- SKIP: TestB (0s)\n--- PASS: TestC (0s)\n", nil, ""},
		{"failed", 0, "--- FAIL: TestA (0s)\n", failed, ""},
		{"hung at the second", 0, "=== RUN   TestA\n\x16--- PASS: TestA (0s)\n=== RUN   TestB\n", hung, "TestB TestC"},
		{"hung at the first", 0, "=== RUN   TestA\n", hung, "TestA TestB TestC"},
		{"hung at the first once more", 1, "=== RUN   TestA\n", hung, ""},
		{"hung later once more", 1, "--- FAIL: TestA (0s)\n", hung, "TestB TestC"},
		{"no test has ended with its subtests", 0, "    --- PASS: TestA/sub (0s)\n--- PASS: TestA/sub (0s)\n", hung, "TestA TestB TestC"},
		{"complained", 0, "--- PASS: TestA (0s)\n--- PASS: TestB (0s)\n--- PASS: TestC (0s)\n", errKernel, "TestA TestB TestC"},
		{"complained once more", 1, "--- PASS: TestA (0s)\n--- PASS: TestB (0s)\n--- PASS: TestC (0s)\n", errKernel, ""},
		{"timed out", 0, "--- PASS: TestA (0s)\n=== RUN   TestB\npanic: test timed out after 15m0s\n", failed, "TestB TestC"},
		{"died of a panic", 0, "--- PASS: TestA (0s)\n=== RUN   TestB\npanic: index out of range\n", failed, ""},
		{"a line in parts", 0, "--- PA|SS: TestA (|0s)|\n", hung, "TestB TestC"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &attempt{suite: suite{tests: tests, retries: c.retries}}
			for part := range strings.SplitSeq(c.output, "|") {
				if _, err := io.WriteString(a, part); err != nil {
					t.Fatal(err)
				}
			}
			next, again := a.next(c.err)
			if again != (c.want != "") || again && (!slices.Equal(next.tests, strings.Fields(c.want)) || next.retries != c.retries+1) {
				t.Errorf("%v %+v, not %q", again, next, c.want)
			}
		})
	}
}

// TestKeep: the events of tests that do not run again are kept, and no others.
func TestKeep(t *testing.T) {
	const begin, own = `{"Action":"start","Package":"p"}` + "\n", `{"Action":"fail","Package":"p","Elapsed":3}` + "\n"
	const ended = `{"Action":"run","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"fail","Package":"p","Test":"TestA/sub"}` + "\n" + `{"Action":"fail","Package":"p","Test":"TestA"}` + "\n"
	const running = `{"Action":"run","Package":"p","Test":"TestB"}` + "\n" + `{"Action":"output","Package":"p","Test":"TestB","Output":"x\n"}` + "\n"
	a := &attempt{ended: map[string]bool{"TestA": true}}
	a.events.WriteString(begin + ended + running + own)
	var got bytes.Buffer
	if err := a.keep(&got); err != nil || got.String() != ended {
		t.Errorf("%v, %s", err, &got)
	}
	a.events.WriteString("no event\n")
	if err := a.keep(&got); err == nil {
		t.Error("a line that is no event is kept")
	}
	if err := (&attempt{plain: true}).keep(nil); err != nil {
		t.Error(err)
	}
}
