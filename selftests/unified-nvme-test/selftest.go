package main

import (
	"context"
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

// tester runs the steps. A step returns its details.
type tester struct {
	*session
	options options
}

// selfTest runs every step. A step that fails to open something ends it; after other failures it continues.
func selfTest(ctx context.Context, o options, out io.Writer) error {
	t := &tester{session: &session{}, options: o}
	n := need{block: chainFrames * frameSize, depth: testFrames / chainFrames, piece: frameSize}
	opens := []harness.Step{
		{Name: "region", Do: func() (string, error) { return t.regionStep(n) }},
		{Name: "target", Do: t.targetStep},
		{Name: "queue", Do: func() (string, error) { return t.queueStep(n) }},
	}
	return harness.SelfTest(ctx, out, o.json, o.target, len(opens), append(opens, []harness.Step{
		{Name: "write", Do: t.write}, {Name: "other reader", Do: t.otherReader}, {Name: "read", Do: t.read}, {Name: "gather", Do: t.gather},
		{Name: "scatter", Do: t.scatter}, {Name: "flush", Do: t.flush}, {Name: "misaligned", Do: t.misaligned}, {Name: "end", Do: t.end},
		{Name: "copies", Do: t.copies}, {Name: "frames", Do: t.frames},
	}...), harness.Step{Name: "close", Do: t.shut})
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
	return fmt.Sprintf("fixed buffers; rings in the control area: %s; gathers from fixed buffers: %s", harness.YesNo(g.RingsInRegion), harness.YesNo(g.GatherFixed)), nil
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
