package nvme

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// elsewhere runs f on its own thread, which then ends.
func elsewhere(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		f()
	}()
	<-done
}

// TestOpenElsewhere: a queue and its descriptor that were opened on a thread that has ended work on
// another thread.
func TestOpenElsewhere(t *testing.T) {
	for _, v := range append(versions, versions[0]) {
		r := newRig(t, umem.Config{}, Config{})
		r.check(r.queue.Close())
		config := fileTarget(t, 1<<20)
		var i uint32
		elsewhere(func() {
			r.reopen(Config{}.Without(v.without))
			_, i = r.open(config)
			if r.queue.FD() < 0 {
				t.Errorf("%s: no descriptor", v.name)
			}
		})
		fs := r.take(4)
		for k, f := range fs {
			r.at(f, i, uint64(k)*4096)
		}
		r.hands.Give(r.read(r.write(fs)))
	}
}

// TestWrongThread: a queue returns ErrWrongThread on a thread other than its own.
func TestWrongThread(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	to, i := r.open(fileTarget(t, 1<<20))
	fs := r.take(1)
	r.at(fs[0], i, 0)
	fs = r.write(fs)
	if n := r.queue.Send(fs); n != 1 {
		t.Fatal("Send took nothing")
	}
	elsewhere(func() {
		_, add := r.queue.Add(to)
		for verb, err := range map[string]error{"Kick": r.queue.Kick(), "Wait": r.queue.Wait(time.Second), "Add": add} {
			if !errors.Is(err, ErrWrongThread) {
				t.Errorf("%s on another thread: %v", verb, err)
			}
		}
		if fd := r.queue.FD(); fd >= 0 {
			t.Error("FD on another thread made a descriptor")
		}
		if err := r.queue.Kick(); !errors.Is(err, ErrWrongThread) {
			t.Errorf("Kick after FD on another thread: %v", err)
		}
	})
	back := r.collect(1, r.queue.Reap)
	if back[0].Err() != nil {
		t.Errorf("the write is lost: %v", back[0].Err())
	}
	r.hands.Give(back)
}

// TestCloseElsewhere: another thread can close a queue with nothing in flight, while the queue's
// own thread lives and after it has ended.
func TestCloseElsewhere(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	config := fileTarget(t, 1<<20)
	_, i := r.open(config)
	fs := r.take(2)
	r.hands.Give(r.write([]umem.Frame{r.at(fs[0], i, 0)}))
	r.queue.Send([]umem.Frame{r.at(fs[1], i, 0)})
	elsewhere(func() { r.check(r.queue.Close()) })
	if n := r.hands.Held(); n != 0 {
		t.Errorf("the worker has %d frames", n)
	}

	elsewhere(func() {
		r.reopen(Config{})
		_, i = r.open(config)
		fs := r.take(1)
		r.queue.Send([]umem.Frame{r.at(fs[0], i, 0)})
		r.check(r.queue.Kick())
	})
	r.check(r.queue.Close())
}

// TestWait: Wait works with and without a limit.
func TestWait(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	_, i := r.open(fileTarget(t, 1<<20))
	fs := r.take(1)
	for _, limit := range []time.Duration{-1, time.Minute} {
		r.check(r.queue.Wait(limit)) // nothing to wait for
		r.queue.Send([]umem.Frame{r.at(fs[0], i, 0)})
		for begin := time.Now(); r.queue.Reap(fs) == 0; {
			r.check(r.queue.Wait(limit))
			if time.Since(begin) > 10*time.Second {
				t.Fatal("Wait does not collect")
			}
		}
		r.check(fs[0].Err())
	}
	r.hands.Give(fs)
}

// TestWaitFor: WaitFor returns when the requested number of operations is complete. It does not
// hang if more are requested than are in flight.
func TestWaitFor(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	_, i := r.open(fileTarget(t, 1<<20))
	fs := r.take(16)
	for _, n := range []int{-1, 0, 1, 4, 16, 1000} {
		for k, f := range fs {
			r.at(f, i, uint64(k)*4096)
		}
		r.queue.Send(fs)
		entered := r.queue.Stats().Enters
		for back := 0; back < len(fs); back += r.queue.Reap(fs[back:]) {
			r.check(r.queue.WaitFor(n, time.Minute))
		}
		if waits := r.queue.Stats().Enters - entered; n >= len(fs) && waits > 4 { // a signal may end a wait early
			t.Errorf("waiting for all of %d took %d waits", len(fs), waits)
		}
	}
	r.hands.Give(fs)
}

// TestWaitLimit: Wait ends at its limit if the disk does not answer: a frozen file system.
func TestWaitLimit(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	ice := newIce(t)
	_, i := r.open(ice.config)
	ice.freeze()
	defer ice.thaw()
	fs := r.take(1)
	r.queue.Send([]umem.Frame{r.at(fs[0], i, 0)})
	for begin := time.Now(); time.Since(begin) < 50*time.Millisecond; {
		r.check(r.queue.Wait(10 * time.Millisecond)) // a signal may end it early
		if r.queue.Reap(fs) != 0 {
			t.Fatal("a frozen file system took a write")
		}
	}
	ice.thaw()
	r.hands.Give(r.collect(1, r.queue.Reap))
}

// TestSleep: poll(2) on FD sleeps until a slow write completes.
func TestSleep(t *testing.T) {
	r := newRig(t, umem.Config{}, Config{})
	ice := newIce(t)
	_, i := r.open(ice.config)
	fds := []unix.PollFd{{Fd: int32(r.queue.FD()), Events: unix.POLLIN}}
	ice.freeze()
	defer ice.thaw()
	fs := r.take(1)
	r.queue.Send([]umem.Frame{r.at(fs[0], i, 0)})
	r.check(r.queue.Kick())
	if n, _ := unix.Poll(fds, 20); n > 0 {
		t.Error("FD polls readable while nothing has completed")
	}
	time.AfterFunc(50*time.Millisecond, ice.thaw)
	begin := time.Now()
	for n := 0; n == 0; {
		var err error
		if n, err = unix.Poll(fds, 10000); err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
		if time.Since(begin) > 5*time.Second {
			t.Fatal("poll slept on")
		}
	}
	r.hands.Give(r.collect(1, r.queue.Reap))
	if n, _ := unix.Poll(fds, 0); n > 0 {
		t.Error("FD still polls readable when everything has been taken")
	}
}
