package nvme

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// span executes an operation on a range and returns its result.
func (r *rig) span(verb func(target uint32, at, n, token uint64) error, target uint32, at, n uint64) error {
	r.Helper()
	if err := verb(target, at, n, 7); err != nil {
		return err
	}
	var dst [1]FlushResult
	testenv.Wait(r, 10*time.Second, "an operation on a range", func() bool {
		r.check(r.queue.Kick())
		return r.queue.Flushed(dst[:]) == 1
	})
	if dst[0].Token != 7 {
		r.Errorf("token %d came back", dst[0].Token)
	}
	return dst[0].Err
}

// written writes n frames of random bytes to the start of a target and gives them back to the pool.
func (r *rig) written(target uint32, n int, send func([]umem.Frame) int) []byte {
	r.Helper()
	var want []byte
	fs := r.take(n)
	for k, f := range fs {
		fs[k] = r.at(f, target, uint64(k)*uint64(f.Len))
		r.fill(f, uint64(k)+1)
		want = append(want, r.region.Bytes(f)...)
	}
	r.hands.Give(r.move(fs, send, r.queue.Reap))
	return want
}

// TestSpans: zeroing and discarding in the middle of durable data works. Another program sees the
// result on the disk.
func TestSpans(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			r := newRig(t, umem.Config{}, Config{})
			to, i := r.open(k.config(t, 1<<20))
			for name, verb := range map[string]func(uint32, uint64, uint64, uint64) error{"zero": r.queue.Zero, "discard": r.queue.Discard} {
				want := r.written(i, 8, r.queue.SendDurable)
				if got := onDisk(t, to.Path(), 0, 8*4096); !bytes.Equal(got, want) {
					t.Fatal("a durable write is not on the disk")
				}
				testenv.Mustf(t, r.span(verb, i, 8192, 12288), "%s", name)
				clear(want[8192:][:12288])
				if got := onDisk(t, to.Path(), 0, 8*4096); !bytes.Equal(got, want) {
					t.Errorf("%s: the disk holds something else", name)
				}
			}
			if s := r.queue.Stats(); s.Discards != 1 || s.Zeroings != 1 || s.Writes != 16 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestDiscardOnOlderKernels: the discard of kernels before 6.12 completes. Newer kernels may answer
// with success or an error.
func TestDiscardOnOlderKernels(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	_, i := r.open(zramTarget(t, 1<<20))
	r.queue.targets[i].discards = discardFallocate
	if err := r.span(r.queue.Discard, i, 0, 4096); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		t.Error(err)
	}
}

// TestBadSpans: ranges that no target allows are refused.
func TestBadSpans(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	_, i := r.open(zramTarget(t, 1<<20))
	for _, c := range []struct{ at, n uint64 }{{0, 0}, {1, 4096}, {0, 100}, {1 << 20, 4096}, {1<<20 - 4096, 8192}, {1 << 63, 4096}, {4096, 1<<64 - 4096}} {
		if err := r.queue.Zero(i, c.at, c.n, 0); !errors.Is(err, ErrBadRange) {
			t.Errorf("%d bytes at %d: %v", c.n, c.at, err)
		}
	}
	if err := r.queue.Discard(i+1, 0, 4096, 0); !errors.Is(err, ErrNoTarget) {
		t.Error(err)
	}
	file := emptyFile(t)
	_, j := r.open(TargetConfig{Path: zeroFile(t, file), ReadOnly: true})
	if err := r.queue.Zero(j, 0, 4096, 0); !errors.Is(err, unix.EROFS) {
		t.Error(err)
	}
	for range MaxFlushes {
		testenv.Must(t, r.queue.Zero(i, 0, 4096, 0))
	}
	if err := r.queue.Flush(i, 0); !errors.Is(err, ErrBusy) {
		t.Error(err)
	}
	var dst [MaxFlushes]FlushResult
	n := 0
	testenv.Wait(r, 10*time.Second, "zeroings", func() bool {
		r.check(r.queue.Kick())
		n += r.queue.Flushed(dst[:])
		return n == MaxFlushes
	})
}

// zeroFile makes the file of a config, with one block.
func zeroFile(t testing.TB, c TargetConfig) string {
	t.Helper()
	c.Size, c.Prepare = 4096, PrepareZero
	to, err := OpenTarget(c)
	testenv.Must(t, err)
	testenv.Must(t, to.Close())
	return c.Path
}
