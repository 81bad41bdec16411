package attach

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// newTestPort makes a port that is closed with the test. theirs is the program's end of its wake sockets.
func newTestPort(t *testing.T) (p *Port, theirs int) {
	t.Helper()
	p, files, err := newPort(1, 7, 64)
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Check(t, files.close(), p.free()) })
	return p, int(files.wake.Fd())
}

// readable reports whether a descriptor keeps a thread that polls it from sleeping.
func readable(t *testing.T, fd int) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	testenv.Must(t, err)
	return n > 0
}

// TestWakesWithoutEnd: the worker takes a bounded number of wakes at once, because a program may send them faster. What is
// left wakes it again.
func TestWakesWithoutEnd(t *testing.T) {
	p, theirs := newTestPort(t)
	sent := 0
	for ; ; sent++ {
		if _, err := unix.SendmsgN(theirs, make([]byte, 256), nil, nil, unix.MSG_DONTWAIT); err != nil {
			break
		}
	}
	rounds := 0
	for ; readable(t, p.wake); rounds++ {
		p.sleep(wire.RingSubmitted)
		p.awake(wire.RingSubmitted)
	}
	if sent < 2*mostWakes || rounds < sent/mostWakes {
		t.Errorf("%d wakes are taken in %d rounds", sent, rounds)
	}
	if p.broken() {
		t.Errorf("they end the program: %v", p.why())
	}
}

// TestWakeSocketsShut: a program that shuts its end of a wake socket down or closes it does not keep who polls the other end
// awake: the worker at a port, readers of a channel, and the worker that passes a channel on.
func TestWakeSocketsShut(t *testing.T) {
	for side := range 2 {
		ends, err := wakeSockets()
		testenv.Must(t, err)
		ours, theirs := ends[side], ends[1-side]
		sleeps := func(what string) {
			t.Helper()
			drain(ours)
			if readable(t, ours) {
				t.Errorf("after the other end's %s a thread cannot sleep", what)
			}
		}
		if _, err := unix.Write(theirs, []byte{1}); err != nil || !readable(t, ours) {
			t.Fatalf("a wake does not arrive: %v", err)
		}
		testenv.Must(t, unix.Shutdown(theirs, unix.SHUT_RDWR))
		sleeps("shutdown")
		testenv.Must(t, unix.Close(theirs))
		sleeps("close")
		testenv.Must(t, unix.Close(ours))
	}
}

// TestWakeDescriptors: a socket whose close waits for its peer comes over a wake socket. The worker does not wait, and the
// program is ended.
func TestWakeDescriptors(t *testing.T) {
	testenv.Leaks(t)
	p, theirs := newTestPort(t)
	_ = unix.SetsockoptInt(p.wake, unix.SOL_SOCKET, soPassRights, 1) // as before Linux 6.16
	send := lingering(t)
	send(func(fd int) error { return unix.Sendmsg(theirs, []byte{1}, unix.UnixRights(fd), nil, 0) })
	begun := time.Now()
	p.sleep(wire.RingSubmitted)
	p.awake(wire.RingSubmitted)
	if took := time.Since(begun); took > lingerSeconds*time.Second/2 {
		t.Errorf("the worker waits %v for the socket", took)
	}
	if p.why() != wire.BadDescriptor {
		t.Errorf("the program is ended with %v", p.why())
	}
}

const lingerSeconds = 60

// lingering returns a function that passes on a TCP socket, the last descriptor of which takes a minute to close: it has
// bytes that its peer does not take.
func lingering(t *testing.T) (send func(pass func(fd int) error)) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	testenv.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return func(pass func(fd int) error) {
		t.Helper()
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		testenv.Must(t, err)
		at := l.Addr().(*net.TCPAddr)
		testenv.Must(t, unix.Connect(fd, &unix.SockaddrInet4{Port: at.Port, Addr: [4]byte(at.IP.To4())}))
		peer, err := l.Accept()
		testenv.Must(t, err)
		t.Cleanup(func() { _ = peer.Close() })
		for chunk := make([]byte, 64<<10); ; {
			if _, err := unix.SendmsgN(fd, chunk, nil, nil, unix.MSG_DONTWAIT); err != nil {
				break
			}
		}
		testenv.Must(t, unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: lingerSeconds}), pass(fd))
		testenv.Must(t, unix.Close(fd))
	}
}
