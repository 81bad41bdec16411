package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/unifiedd/unifiedd/selftests/harness"
	"github.com/unifiedd/unifiedd/umem"
)

// The self-test moves 64 frames, singly and in chains of eight.
const (
	chainFrames  = 8
	testFrames   = 64
	selfTestSize = 4 << 20 // bytes of a file made for the test; it writes to the first half MiB
)

// step is the result of one step of the self-test.
type step struct {
	Name   string `json:"step"`
	Status string `json:"status"` // PASS, FAIL or SKIP
	Detail string `json:"detail"`
}

// errSkip means that a step has nothing to test on this target.
var errSkip = errors.New("skipped")

// tester runs the steps. A step returns its details.
type tester struct {
	*session
	options options
	steps   []step
	failed  int
}

// selfTest runs every step and prints the results. A step that fails to open something ends it;
// after other failures it continues.
func selfTest(ctx context.Context, o options, out io.Writer) error {
	t := &tester{session: &session{}, options: o}
	t.runAll(ctx)
	t.step("close", t.shut)
	if err := t.print(out); err != nil {
		return err
	}
	if t.failed > 0 {
		return fmt.Errorf("self-test of %s: %d of %d steps failed", o.target, t.failed, len(t.steps))
	}
	return ctx.Err()
}

func (t *tester) runAll(ctx context.Context) {
	n := need{block: chainFrames * frameSize, depth: testFrames / chainFrames, piece: frameSize}
	for _, open := range []struct {
		name string
		run  func() (string, error)
	}{
		{"region", func() (string, error) { return t.regionStep(n) }},
		{"target", t.targetStep},
		{"queue", func() (string, error) { return t.queueStep(n) }},
	} {
		if !t.step(open.name, open.run) {
			return
		}
	}
	for _, s := range []struct {
		name string
		run  func() (string, error)
	}{
		{"write", t.write}, {"other reader", t.otherReader}, {"read", t.read}, {"gather", t.gather}, {"scatter", t.scatter},
		{"flush", t.flush}, {"misaligned", t.misaligned}, {"end", t.end}, {"copies", t.copies}, {"frames", t.frames},
	} {
		if ctx.Err() != nil {
			return
		}
		t.step(s.name, s.run)
	}
}

// step runs a step and records its result.
func (t *tester) step(name string, run func() (string, error)) bool {
	detail, err := run()
	s := step{Name: name, Status: "PASS", Detail: detail}
	switch {
	case errors.Is(err, errSkip):
		s.Status = "SKIP"
	case err != nil:
		s.Status, s.Detail = "FAIL", err.Error()
		t.failed++
	}
	t.steps = append(t.steps, s)
	return s.Status != "FAIL"
}

func (t *tester) print(out io.Writer) error {
	if t.options.json {
		return harness.PrintJSON(out, map[string]any{"target": t.options.target, "passed": t.failed == 0, "steps": t.steps})
	}
	var b bytes.Buffer
	for _, s := range t.steps {
		fmt.Fprintf(&b, "%s  %-13s %s\n", s.Status, s.Name, s.Detail)
	}
	if t.failed == 0 {
		fmt.Fprintln(&b, "PASS")
	}
	_, err := out.Write(b.Bytes())
	return err
}

func (t *tester) regionStep(n need) (string, error) {
	if err := t.openRegion(t.options, n); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s and a control area on %v", bytesText(t.region.Size()), t.region.Pages()), nil
}

func (t *tester) targetStep() (string, error) {
	if err := t.openTarget(t.options); err != nil {
		return "", err
	}
	if t.target.Size() < selfTestSize {
		return "", fmt.Errorf("%s has %d bytes: the self-test needs %d", t.target.Path(), t.target.Size(), selfTestSize)
	}
	if !t.target.Direct() {
		return "no direct I/O: the kernel copies each byte", nil
	}
	return fmt.Sprintf("direct I/O, alignment: %v", t.target.Alignment()), nil
}

func (t *tester) queueStep(n need) (string, error) {
	if err := t.openQueue(n); err != nil {
		return "", err
	}
	t.unchain()
	g := t.queue.Granted()
	return fmt.Sprintf("fixed buffers; rings in the control area: %s; gathers from fixed buffers: %s", yes(g.RingsInRegion), yes(g.GatherFixed)), nil
}

// shut closes everything. It fails if frames are missing.
func (t *tester) shut() (string, error) {
	if t.worker != nil {
		t.worker.Give(t.blocks)
	}
	return "everything given back", t.cleanup.Close()
}

// place sets the place of each frame of t.blocks on the target, in order from at.
func (t *tester) place(at uint64) {
	for _, f := range t.blocks {
		*t.region.Side(f) = umem.Side{Target: t.number, Block: at, Token: at}
		at += uint64(f.Len)
	}
}
