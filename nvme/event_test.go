package nvme

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// readable reports whether a descriptor polls readable within a time in milliseconds.
func readable(t *testing.T, fd, limit int) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, limit)
	testenv.Must(t, err)
	return n == 1
}

// TestLateEvent: if the kernel sets the event after the completion was returned, the thread does not find the
// descriptor readable for ever.
func TestLateEvent(t *testing.T) {
	r := newRig(t, umem.Config{Size: 4 << 20, Pages: umem.Ordinary}, Config{Name: "late"})
	_, target := r.open(TargetConfig{Path: filepath.Join(t.TempDir(), "file"), Create: true, Size: 1 << 20})
	fd := r.queue.FD()
	fs := r.take(1)
	fs[0] = r.at(fs[0], target, 0)
	if r.queue.Send(fs) != 1 {
		t.Fatal("the write is not taken")
	}
	r.check(r.queue.Kick())
	var b [8]byte
	if readable(t, fd, 5000) { // the test takes the kernel's signal, and gives it back late
		if _, err := unix.Read(fd, b[:]); err != nil {
			t.Fatal(err)
		}
	}
	back := r.collect(1, r.queue.Reap)
	b[0] = 1
	if _, err := unix.Write(fd, b[:]); err != nil {
		t.Fatal(err)
	}
	for range 4 { // the first waits may end at once
		if fd = r.queue.FD(); !readable(t, fd, 0) {
			r.hands.Give(back)
			return
		}
	}
	t.Error("the descriptor stays readable, and nothing is to be returned")
	r.hands.Give(back)
}
