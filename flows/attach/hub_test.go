package attach

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// lines is a log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// newTestHub opens a hub that listens, with a program p of this user and a channel c from p to q. It is closed with the test.
func newTestHub(t *testing.T) (h *Hub, log *lines) {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		testenv.Must(t, os.Chmod(d, 0o755))
	}
	region, err := umem.Open(umem.Config{Size: 4 << 20, Pages: umem.Ordinary, Slices: []umem.SliceConfig{{Name: "p", In: 1 << 20, Out: 1 << 20}, {Name: "q", In: 1 << 20}}})
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Check(t, region.Close()) })
	log = &lines{}
	self := strconv.Itoa(os.Getuid())
	h, err = Open(Config{
		Region: region, Log: slog.New(slog.NewTextHandler(log, nil)), Socket: filepath.Join(dir, "attach.sock"),
		Programs: []ProgramConfig{{Name: "p", User: self}, {Name: "q", User: self}},
		Channels: []ChannelConfig{{Name: "c", Writer: "p", Readers: []ReaderConfig{{Program: "q", Strict: true}}, Slots: 64, Slot: 64}},
	})
	testenv.Must(t, err)
	testenv.Must(t, h.Listen())
	t.Cleanup(func() { testenv.Check(t, h.Close()) })
	return h, log
}

// dial connects to the hub, and says hello with a name.
func (h *Hub) dial(t *testing.T, name string, rights ...int) *net.UnixConn {
	t.Helper()
	var c *net.UnixConn
	var err error
	testenv.Wait(t, time.Minute, "the hub to accept those before", func() bool {
		c, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: h.config.Socket, Net: "unixpacket"})
		return !errors.Is(err, unix.EAGAIN)
	})
	testenv.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	hello, err := wire.Append(nil, &wire.Hello{Name: name, Session: 7}, false)
	testenv.Must(t, err)
	_, _, err = c.WriteMsgUnix(hello, unix.UnixRights(rights...), nil)
	testenv.Must(t, err)
	return c
}

// answer reads a message of the hub.
func answer(t *testing.T, c *net.UnixConn) (body any, fds []int) {
	t.Helper()
	b, oob := make([]byte, 1024), make([]byte, 1024)
	n, oobn, _, _, err := c.ReadMsgUnix(b, oob)
	testenv.Must(t, err)
	body, _, err = wire.Parse(b[:n])
	testenv.Must(t, err)
	return body, descriptors(oob[:oobn])
}

// asUser runs a function on a thread of another user.
func asUser(t *testing.T, uid int, do func() error) (done <-chan error) {
	t.Helper()
	testenv.Root(t)
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			ended <- errno
			return
		}
		ended <- do()
	}()
	return ended
}

const nobody = 65534

// TestPlaces: a user without a program who connects as often as possible keeps no program out, and fills no log.
func TestPlaces(t *testing.T) {
	testenv.Leaks(t)
	h, log := newTestHub(t)
	var stop atomic.Bool
	var connects atomic.Uint64
	ended := asUser(t, nobody, func() error {
		var open []int
		defer func() { closeAll(open) }()
		for !stop.Load() {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				open = append(open, fd)
				err = unix.Connect(fd, &unix.SockaddrUnix{Name: h.config.Socket})
			}
			if err != nil {
				return err
			}
			connects.Add(1)
			if len(open) == 700 {
				closeAll(open[:1])
				open = open[1:]
			}
		}
		return nil
	})
	testenv.Wait(t, time.Minute, "many connections", func() bool { return connects.Load() > 600 })
	for range 20 {
		c := h.dial(t, "p")
		body, fds := answer(t, c)
		closeAll(fds)
		if _, is := body.(*wire.Welcome); !is {
			t.Errorf("beside %d connections of another user a program is answered with %+v", connects.Load(), body)
		}
		testenv.Must(t, c.Close())
		testenv.Wait(t, time.Minute, "the name to be free", func() bool { all, _ := h.Stats(); return !all[0].Attached })
	}
	begun := time.Now()
	testenv.Wait(t, time.Minute, "thousands of connections", func() bool { return connects.Load() > 5000 })
	stop.Store(true)
	testenv.Must(t, <-ended)
	if n, most := log.count("a program was refused"), linesAtOnce+5+int(time.Since(begun)/linePeriod); n == 0 || n > most+10 {
		t.Errorf("%d refusals are logged, and at most %d may be", n, most)
	}
	if _, refused := h.Stats(); refused[wire.OverQuota]+refused[wire.NotPermitted] < 5000-700 {
		t.Errorf("counted: %v", refused)
	}
}

// TestOwnPlaces: a user's own connections are limited, with one place for each of its programs and some more.
func TestOwnPlaces(t *testing.T) {
	h, _ := newTestHub(t)
	var open []*net.UnixConn
	for range spare + 2 {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: h.config.Socket, Net: "unixpacket"})
		testenv.Must(t, err)
		defer c.Close()
		open = append(open, c)
	}
	testenv.Wait(t, time.Minute, "all to be admitted", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.sessions) == len(open) })
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: h.config.Socket, Net: "unixpacket"})
	testenv.Must(t, err)
	defer c.Close()
	if body, _ := answer(t, c); fmt.Sprint(body) != fmt.Sprintf("over_quota: user %d has %d connections; at most %[2]d are possible", os.Getuid(), spare+2) {
		t.Errorf("one more is answered with %v", body)
	}
	testenv.Must(t, open[0].Close())
	testenv.Wait(t, time.Minute, "a place", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.sessions) < len(open) })
	if body, fds := answer(t, h.dial(t, "p")); closing(fds) == nil {
		if _, is := body.(*wire.Welcome); !is {
			t.Errorf("with a place it is answered with %v", body)
		}
	}
}

func closing(fds []int) error { closeAll(fds); return nil }

// TestDescriptorsShort: programs attach again once the daemon has descriptors again.
func TestDescriptorsShort(t *testing.T) {
	h, log := newTestHub(t)
	var before unix.Rlimit
	testenv.Must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	testenv.Must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: before.Max}))
	var all []int
	restore := sync.OnceFunc(func() {
		closeAll(all)
		testenv.Check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
	})
	defer restore()
	client, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	testenv.Must(t, err)
	for {
		fd, err := unix.FcntlInt(uintptr(client), unix.F_DUPFD_CLOEXEC, 0)
		if errors.Is(err, unix.EMFILE) {
			break
		}
		testenv.Must(t, err)
		all = append(all, fd)
	}
	testenv.Must(t, unix.Connect(client, &unix.SockaddrUnix{Name: h.config.Socket}))
	testenv.Wait(t, time.Minute, "accept to fail", func() bool { return log.count("no program can attach now") > 0 })
	restore()
	testenv.Must(t, unix.Close(client))
	body, fds := answer(t, h.dial(t, "p"))
	closeAll(fds)
	if _, is := body.(*wire.Welcome); !is {
		t.Errorf("afterwards a program is answered with %v", body)
	}
}

// TestPortsGoBack: a port that cannot be installed, because its flow ends at that moment or is busy, leaves nothing behind.
func TestPortsGoBack(t *testing.T) {
	testenv.Leaks(t)
	r := newRig(t, wire.Send)
	r.end.Begin()
	s := newSession(r.end.hub, nil)
	s.program = r.end.program
	for _, closed := range []bool{false, true} {
		r.end.program.mu.Lock()
		r.end.closed = closed
		r.end.program.mu.Unlock()
		before := locked(t)
		for range 20 {
			if _, _, _, why := s.makePort(t.Context(), &wire.Open{Flow: "f", Role: wire.Send}); why == nil {
				t.Fatal("a port opens")
			}
		}
		if after := locked(t); after != before {
			t.Errorf("closed %t: %s of memory are locked; before: %s", closed, after, before)
		}
	}
}

// locked returns how much memory of this process is locked.
func locked(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	testenv.Must(t, err)
	_, rest, _ := strings.Cut(string(text), "VmLck:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

// TestReadOnlyStaysSo: what a program has of a channel for reading only it cannot open again for writing, through /proc: the
// page that the daemon alone writes not even as root, and the page of another reader not as another user.
func TestReadOnlyStaysSo(t *testing.T) {
	testenv.Root(t)
	h, _ := newTestHub(t)
	c := h.dial(t, "p")
	_, fds := answer(t, c)
	closeAll(fds)
	b, err := wire.Append(nil, &wire.Open{Flow: "c", Role: wire.Write}, false)
	testenv.Must(t, err)
	_, err = c.Write(b)
	testenv.Must(t, err)
	body, fds := answer(t, c)
	defer closeAll(fds)
	if _, is := body.(*wire.Opened); !is || len(fds) != 4 {
		t.Fatalf("the channel is answered with %+v and %d descriptors", body, len(fds))
	}
	again := func(fd int) (int, error) {
		return unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
	}
	present, cursor := fds[1], fds[2]
	if fd, err := again(present); err == nil {
		if _, err := unix.Mmap(fd, 0, wire.PageLen, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			t.Error("a program can write the page that says which readers are there")
		}
		if _, err := unix.Pwrite(fd, []byte{1}, 0); err == nil {
			t.Error("a program can write to the page that says which readers are there")
		}
		_ = unix.Close(fd)
	}
	testenv.Must(t, <-asUser(t, nobody, func() error {
		for _, one := range []int{present, cursor} {
			if fd, err := again(one); err == nil {
				_ = unix.Close(fd)
				t.Errorf("another user can open descriptor %d for writing", one)
			}
		}
		return nil
	}))
}

// TestClosingDoesNotWait: descriptors that come with a message, and take long to close, keep nothing waiting.
func TestClosingDoesNotWait(t *testing.T) {
	h, _ := newTestHub(t)
	begun := time.Now()
	var c *net.UnixConn
	lingering(t)(func(fd int) error {
		many := make([]int, 200) // more than there is room for in a small buffer
		for i := range many {
			many[i] = fd
		}
		c = h.dial(t, "p", many...)
		return nil
	})
	_, fds := answer(t, c)
	closeAll(fds)
	testenv.Must(t, h.Close())
	if took := time.Since(begun); took > lingerSeconds*time.Second/2 {
		t.Errorf("it takes %v", took)
	}
}

// TestPaced: lines go through in a number at once and then one a second, and the next one says how many were left out.
func TestPaced(t *testing.T) {
	var out bytes.Buffer
	h := paced(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))).With("a", 1).Handler()
	at := time.Unix(1000, 0)
	say := func(n int) {
		for range n {
			_ = h.Handle(context.Background(), slog.NewRecord(at, slog.LevelInfo, "line", 0))
		}
	}
	say(linesAtOnce + 10)
	if n := strings.Count(out.String(), "\n"); n != linesAtOnce {
		t.Errorf("%d lines go through at once, and not %d", n, linesAtOnce)
	}
	out.Reset()
	at = at.Add(2 * linePeriod)
	say(4)
	if want := "level=INFO msg=line a=1 lines_omitted=10\nlevel=INFO msg=line a=1\n"; out.String() != want {
		t.Errorf("two seconds later: %q, not %q", out.String(), want)
	}
}
