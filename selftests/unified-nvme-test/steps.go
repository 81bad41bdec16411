package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/selftests/harness"
	"github.com/unifiedd/unifiedd/umem"
)

// stepLimit is how long a step waits for the device.
const stepLimit = 30 * time.Second

// write writes each frame to its own place.
func (t *tester) write() (string, error) {
	t.place(0)
	t.paint(1)
	if err := t.move(t.queue.Send, t.queue.Reap); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d frames of %d bytes, each one operation", len(t.blocks), frameSize), nil
}

// otherReader compares with the bytes that read(2) returns through the page cache: other programs
// must see the data of this one.
func (t *tester) otherReader() (string, error) {
	return "read(2) finds every byte" + t.through(), t.compareDisk(0, 1, frameSize)
}

// read clears the frames and reads them back.
func (t *tester) read() (string, error) {
	t.place(0)
	for _, f := range t.blocks {
		clear(t.region.Bytes(f))
	}
	if err := t.move(t.queue.Supply, t.queue.Recv); err != nil {
		return "", err
	}
	return "every byte is what was written", t.compareFrames(0, 1, frameSize)
}

// gather writes chains of pieces that are not adjacent, each by one operation.
func (t *tester) gather() (string, error) {
	before := t.queue.Stats()
	defer t.unchain()
	t.chain(t.piece())
	t.place(gatherAt)
	t.paint(2)
	if err := t.move(t.queue.Send, t.queue.Reap); err != nil {
		return "", err
	}
	after := t.queue.Stats()
	if n := after.Writes - before.Writes; n != testFrames/chainFrames {
		return "", fmt.Errorf("%d chains became %d operations", testFrames/chainFrames, n)
	}
	how := "from fixed buffers"
	if after.Pinned > before.Pinned {
		how = "their pages pinned each time, since the kernel cannot gather from fixed buffers"
	}
	return fmt.Sprintf("chains of %d pieces of %d bytes, each one operation, %s", chainFrames, t.piece(), how), t.compareDisk(gatherAt, 2, t.piece())
}

// scatter reads the chains back.
func (t *tester) scatter() (string, error) {
	defer t.unchain()
	t.chain(t.piece())
	t.place(gatherAt)
	for _, f := range t.blocks {
		clear(t.region.Bytes(f))
	}
	if err := t.move(t.queue.Supply, t.queue.Recv); err != nil {
		return "", err
	}
	if err := t.compareFrames(gatherAt, 2, t.piece()); err != nil {
		return "", err
	}
	return "every piece is what was written", nil
}

// gatherAt is the offset of the chains on the target, in bytes.
const gatherAt = testFrames * frameSize

// piece returns the bytes of each piece of a chain: the fewest that the target accepts.
func (t *tester) piece() uint32 { return max(512, t.target.Alignment().Offset) }

// chain joins the frames into chains of pieces.
func (t *tester) chain(piece uint32) {
	for i := range t.blocks {
		t.blocks[i].Len, t.blocks[i].Options = piece, 0
		if (i+1)%chainFrames != 0 {
			t.blocks[i].Options = umem.More
		}
	}
}

// unchain makes the frames single and full again.
func (t *tester) unchain() {
	for i := range t.blocks {
		t.blocks[i].Len, t.blocks[i].Options = frameSize, 0
	}
}

// flush makes the writes durable.
func (t *tester) flush() (string, error) {
	start := time.Now()
	if err := t.queue.Flush(t.number, 42); err != nil {
		return "", err
	}
	var done [1]nvme.FlushResult
	for t.queue.Flushed(done[:]) == 0 {
		if err := t.wait(start); err != nil {
			return "", err
		}
	}
	if done[0].Token != 42 || done[0].Err != nil {
		return "", fmt.Errorf("flush %d: %w", done[0].Token, done[0].Err)
	}
	return fmt.Sprintf("took %v", time.Since(start).Round(time.Microsecond)), nil
}

// errAccepted means that the queue accepted a wrong request.
var errAccepted = errors.New("it was accepted")

// misaligned submits requests that the target does not accept: the queue must refuse them before
// the kernel sees them.
func (t *tester) misaligned() (string, error) {
	a := t.target.Alignment()
	if a.Memory <= 1 && a.Offset <= 1 {
		return "the target takes any address and length", harness.ErrSkip
	}
	frame := t.blocks[0]
	wrong := map[string]umem.Frame{"an odd length": {Addr: frame.Addr, Len: frameSize - 1}, "an odd offset": frame}
	if a.Memory > 1 && a.Offset < frameSize {
		wrong["an odd address"] = umem.Frame{Addr: frame.Addr + 1, Len: a.Offset}
	}
	for what, f := range wrong {
		*t.region.Side(frame) = umem.Side{Target: t.number}
		if f == frame {
			t.region.Side(frame).Block = 1
		}
		t.blocks[0] = f
		err := t.moveSome(t.blocks[:1], t.queue.Send, t.queue.Reap)
		t.blocks[0] = frame
		if !errors.Is(err, unix.EINVAL) {
			return "", fmt.Errorf("a write with %s should be refused as invalid, but: %w", what, cmp.Or(err, errAccepted))
		}
	}
	return "odd lengths, offsets and addresses are refused, the target is as it was", t.compareDisk(0, 1, frameSize)
}

// end reads beyond the end of the target.
func (t *tester) end() (string, error) {
	t.place(t.target.Size())
	err := t.moveSome(t.blocks[:1], t.queue.Supply, t.queue.Recv)
	if !errors.Is(err, unix.ENODATA) {
		return "", fmt.Errorf("a read behind the end should say that there is no data, but: %w", cmp.Or(err, errAccepted))
	}
	return "a read behind the end says so", nil
}

// copies checks whether the kernel copied.
func (t *tester) copies() (string, error) {
	s := t.queue.Stats()
	if t.target.Direct() && s.Copied > 0 {
		return "", fmt.Errorf("%d bytes were copied although the target has direct I/O", s.Copied)
	}
	return fmt.Sprintf("%d bytes read and written, %d of them copied by the kernel", s.BytesRead+s.BytesWritten, s.Copied), nil
}

// frames checks the owners of the region's frames.
func (t *tester) frames() (string, error) {
	count, err := t.region.Audit()
	if err != nil {
		return "", err
	}
	if n := count.Of(umem.OwnerNVMe); n != 0 {
		return "", fmt.Errorf("the queue still has %d frames", n)
	}
	return fmt.Sprintf("%d, each where it belongs", count.Sum()), nil
}

// move passes all frames through the queue and restores their order.
func (t *tester) move(begin, end func([]umem.Frame) int) error {
	return t.moveSome(t.blocks, begin, end)
}

// moveSome gives frames to the queue as it accepts them, until all have come back, into fs, in the
// order of their places. It returns the first error.
func (t *tester) moveSome(fs []umem.Frame, begin, end func([]umem.Frame) int) error {
	start := time.Now()
	back := make([]umem.Frame, 0, len(fs))
	for sent := 0; len(back) < len(fs); {
		sent += begin(fs[sent:])
		if err := t.wait(start); err != nil {
			return err
		}
		back = back[:len(back)+end(back[len(back):len(fs)])]
	}
	slices.SortFunc(back, func(a, b umem.Frame) int { return int(t.region.Side(a).Token) - int(t.region.Side(b).Token) })
	copy(fs, back)
	return t.firstError(fs)
}

// firstError returns the error of the first frame that failed, and clears the errors.
func (t *tester) firstError(fs []umem.Frame) (err error) {
	for i, f := range fs {
		if f.Err() != nil && err == nil {
			err = fmt.Errorf("%d bytes at %d of %s: %w", f.Len, t.region.Side(f).Block, t.target.Path(), f.Err())
		}
		fs[i].Options &= umem.KernelOptions
	}
	return err
}

// wait sleeps until something completes.
func (t *tester) wait(start time.Time) error {
	left := stepLimit - time.Since(start)
	if left <= 0 {
		return fmt.Errorf("%s did not answer within %v", t.target.Path(), stepLimit)
	}
	return t.queue.Wait(left)
}

// paint fills each frame with contents that depend on its place and a generation.
func (t *tester) paint(generation uint64) {
	for _, f := range t.blocks {
		harness.Fill(t.region.Bytes(f), t.options.seed+generation, t.region.Side(f).Token)
	}
}

// want returns the expected contents of the target from offset at: pieces that paint made.
func (t *tester) want(at, generation uint64, piece uint32) []byte {
	all := make([]byte, len(t.blocks)*int(piece))
	for b := all; len(b) > 0; b = b[piece:] {
		harness.Fill(b[:piece], t.options.seed+generation, at)
		at += uint64(piece)
	}
	return all
}

// compareDisk reads the target through read(2) and compares.
func (t *tester) compareDisk(at, generation uint64, piece uint32) error {
	want := t.want(at, generation, piece)
	got := make([]byte, len(want))
	if err := t.readDisk(got, at); err != nil {
		return err
	}
	return sameBytes(got, want, at)
}

// compareFrames compares the contents of the frames.
func (t *tester) compareFrames(at, generation uint64, piece uint32) error {
	var got []byte
	for _, f := range t.blocks {
		got = append(got, t.region.Bytes(f)...)
	}
	return sameBytes(got, t.want(at, generation, piece), at)
}

func sameBytes(got, want []byte, at uint64) error {
	if bytes.Equal(got, want) {
		return nil
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("byte %d is %#02x and should be %#02x", at+uint64(i), got[i], want[i])
		}
	}
	return nil
}
