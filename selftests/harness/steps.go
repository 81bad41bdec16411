package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Step is one step of a self-test.
type Step struct {
	Name string
	Do   func() (detail string, err error)
}

// StepResult is what became of a step.
type StepResult struct {
	Step   string `json:"step"`
	Status string `json:"status"` // PASS, FAIL or SKIP
	Detail string `json:"detail"`
}

// ErrSkip is the error of a step that has nothing to test.
var ErrSkip = errors.New("skipped")

// SelfTest runs the steps until one of the first vital ones fails, and then last in any case. It prints each as it ends,
// or all as JSON.
func SelfTest(ctx context.Context, out io.Writer, asJSON bool, target string, vital int, steps []Step, last Step) error {
	var all []StepResult
	failed := 0
	run := func(s Step) bool {
		detail, err := s.Do()
		r := StepResult{s.Name, "PASS", detail}
		switch {
		case errors.Is(err, ErrSkip):
			r.Status = "SKIP"
		case err != nil:
			r.Status, r.Detail = "FAIL", err.Error()
			failed++
		}
		if all = append(all, r); !asJSON {
			fmt.Fprintf(out, "%s  %-13s %s\n", r.Status, r.Step, r.Detail)
		}
		return r.Status != "FAIL"
	}
	for i, s := range steps {
		if ctx.Err() != nil || !run(s) && i < vital {
			break
		}
	}
	run(last)
	if failed == 0 && ctx.Err() == nil && !asJSON {
		fmt.Fprintln(out, "PASS")
	}
	var err error
	if asJSON {
		err = PrintJSON(out, map[string]any{"target": target, "passed": failed == 0, "steps": all})
	}
	if failed > 0 {
		err = errors.Join(err, fmt.Errorf("self-test of %s: %d of %d steps failed", target, failed, len(all)))
	}
	return errors.Join(err, ctx.Err())
}

// StopAfter calls end when a time above 0 has passed, or the context ends, unless cancel is called before.
func StopAfter(ctx context.Context, d time.Duration, end func()) (cancel func()) {
	stop := context.AfterFunc(ctx, end)
	if d <= 0 {
		return func() { stop() }
	}
	timer := time.AfterFunc(d, end)
	return func() { stop(); timer.Stop() }
}
