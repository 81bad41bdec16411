package bench

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

// Form says how long to measure.
type Form struct {
	Name   string
	Rounds int           // of each case
	Span   time.Duration // of each run
}

var (
	usual = Form{"usual", 9, time.Second}
	long  = Form{"long", 15, 2500 * time.Millisecond}
)

// Environment variables: the form, another number of rounds and another span than it has, and an expression that the names
// of wanted cases match. One round of 50ms shows that a comparison works.
const (
	formVariable   = "UNIFIEDD_BENCH"
	roundsVariable = "UNIFIEDD_BENCH_ROUNDS"
	spanVariable   = "UNIFIEDD_BENCH_SPAN"
	casesVariable  = "UNIFIEDD_BENCH_CASES"
)

// wantedForm returns the requested form. It skips the test if none is: go test ./... measures nothing.
func wantedForm(t *testing.T) (f Form) {
	t.Helper()
	switch name := os.Getenv(formVariable); name {
	case "":
		t.Skip("a comparison with another program: make bench")
	case usual.Name:
		f = usual
	case long.Name:
		f = long
	default:
		t.Fatalf("%s=%s: it must be %s or %s", formVariable, name, usual.Name, long.Name)
	}
	if text := os.Getenv(roundsVariable); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("%s=%s: it must be a number of rounds", roundsVariable, text)
		}
		f.Rounds = n
	}
	if text := os.Getenv(spanVariable); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			t.Fatalf("%s=%s: it must be a duration", spanVariable, text)
		}
		f.Span = d
	}
	return f
}

// Share scales a number for the usual form to this one.
func (f Form) Share(n int) int { return int(time.Duration(n) * f.Span / usual.Span) }

// AtMost returns the form with at most n rounds, unless another number was requested.
func (f Form) AtMost(n int) Form {
	if os.Getenv(roundsVariable) == "" {
		f.Rounds = min(f.Rounds, n)
	}
	return f
}

func (f Form) String() string { return fmt.Sprintf("%d rounds of runs of about %v", f.Rounds, f.Span) }
