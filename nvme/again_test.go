package nvme

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// behind makes two writes wait in the kernel. Only one kernel thread is allowed for them. It is
// stuck in a frozen file system with the first write. behind returns the number of the second one.
func (r *rig) behind(ice *ice, fs []umem.Frame, target uint32) uint32 {
	r.Helper()
	r.write([]umem.Frame{r.at(fs[0], target, 0)}) // binds the ring
	r.check(r.queue.ring.limitWorkers(1, 0))
	ice.freeze()
	for k := range fs[:2] {
		if r.queue.Send([]umem.Frame{r.at(fs[k], target, uint64(k)*4096)}) != 1 {
			r.Fatal("Send took nothing")
		}
	}
	r.check(r.queue.Kick())
	testenv.Wait(r, 10*time.Second, "a write to reach the frozen disk", stuckInFreeze)
	for i := range r.queue.ops {
		if o := &r.queue.ops[i]; o.inFlight && o.block == 4096 {
			return uint32(i)
		}
	}
	r.Fatal("no write is behind the stuck one")
	return 0
}

// giveUp makes the kernel give up an operation that has not begun.
func (r *rig) giveUp(i uint32) {
	r.queue.ring.push(sqe{opcode: opAsyncCancel, fd: -1, addr: r.queue.userData(i), userData: cancelData})
	r.check(r.queue.Kick())
}

// TestAgain: if the kernel gives up a write that waits for a thread, the Queue submits it again.
// After many times the write fails.
func TestAgain(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	ice := newIce(t)
	_, target := r.open(ice.config)
	fs := r.take(2)
	i := r.behind(ice, fs, target)
	defer ice.thaw()
	for n := range uint64(3) {
		r.giveUp(i)
		testenv.Wait(t, 10*time.Second, "the kernel to give the write up", func() bool {
			return r.queue.Reap(fs) == 0 && r.queue.Stats().Again == n+1
		})
	}
	r.check(r.queue.Kick()) // the third time
	r.queue.ops[i].tries = maxTries
	r.giveUp(i)
	back := r.collect(1, r.queue.Reap)
	if err := back[0].Err(); !errors.Is(err, unix.ECANCELED) || r.region.Side(back[0]).Block != 4096 {
		t.Errorf("given up for good at %d: %v", r.region.Side(back[0]).Block, err)
	}
	ice.thaw()
	back = append(back, r.collect(1, r.queue.Reap)...)
	testenv.Checkf(t, back[1].Err(), "the write that was stuck")
	if s := r.queue.Stats(); s.Again != 3 || s.Errors[unix.ECANCELED] != 1 || len(s.Errors) != 1 {
		t.Errorf("%+v", s)
	}
	r.hands.Give(back)
}

// TestAgainAndDone: a write that the kernel gave up is submitted again and succeeds.
func TestAgainAndDone(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	ice := newIce(t)
	_, target := r.open(ice.config)
	fs := r.take(2)
	i := r.behind(ice, fs, target)
	defer ice.thaw()
	r.giveUp(i)
	testenv.Wait(t, 10*time.Second, "the kernel to give the write up", func() bool {
		return r.queue.Reap(fs) == 0 && r.queue.Stats().Again == 1
	})
	ice.thaw()
	back := r.collect(2, r.queue.Reap)
	for _, f := range back {
		r.check(f.Err())
	}
	r.hands.Give(back)
}

// TestSignals: flushes succeed while many signals arrive, as the Go runtime sends them on a busy
// machine. Each flush runs on a new thread, for which the kernel has to make a thread.
func TestSignals(t *testing.T) { flushInRain(t, fileTarget(t, 1<<20)) }

func flushInRain(t *testing.T, config TargetConfig) {
	r := newRig(t, umem.Config{}, Config{})
	r.check(r.queue.Close())
	var again uint64
	for range 40 {
		elsewhere(func() {
			r.reopen(Config{})
			_, i := r.open(config)
			stop := rain(unix.Gettid())
			f := r.flush(i, 1)
			stop()
			r.check(f.Err)
			again += r.queue.Stats().Again
			r.check(r.queue.Close())
		})
	}
	t.Logf("%d flushes were submitted again", again)
}

// rain sends a thread the signal that the Go runtime sends to its own threads, until stop is called.
func rain(thread int) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		drop := time.NewTicker(200 * time.Microsecond)
		defer drop.Stop()
		for {
			select {
			case <-quit:
				return
			case <-drop.C:
				_ = unix.Tgkill(os.Getpid(), thread, unix.SIGURG) // the thread lives until stop is called
			}
		}
	}()
	return func() { close(quit); <-done }
}
