package attach

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
)

// raw is a program without a library, which may do anything.
type raw struct {
	*testing.T
	conn    *net.UnixConn
	in, out []byte
	outFD   int
	port    wire.Opened
	memory  []byte
	ringFD  int
	rings   [wire.Rings]*wire.Ring
	wakeFD  int
}

func dialRaw(t *testing.T, dir string) *raw {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: filepath.Join(dir, "attach.sock"), Net: "unixpacket"})
	testenv.Must(t, err)
	r := &raw{T: t, conn: c, outFD: -1, ringFD: -1, wakeFD: -1}
	t.Cleanup(func() {
		_ = c.Close() // the test may have closed it
		for _, b := range [][]byte{r.in, r.out, r.memory} {
			if b != nil {
				_ = unix.Munmap(b)
			}
		}
		for _, fd := range []int{r.outFD, r.ringFD, r.wakeFD} {
			if fd >= 0 {
				_ = unix.Close(fd)
			}
		}
	})
	return r
}

func (r *raw) send(body any) {
	r.Helper()
	b, err := wire.Append(nil, body, false)
	testenv.Must(r, err)
	if _, err := r.conn.Write(b); err != nil {
		r.Fatal(err)
	}
}

// receive reads a message with its descriptors.
func (r *raw) receive() (body any, end bool, fds []int) {
	r.Helper()
	var b, oob [1024]byte
	_ = r.conn.SetReadDeadline(time.Now().Add(testenv.Within(10 * time.Second)))
	n, oobn, _, _, err := r.conn.ReadMsgUnix(b[:], oob[:])
	if err != nil {
		r.Fatalf("the daemon says nothing: %v", err)
	}
	if all, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil {
		for i := range all {
			more, _ := unix.ParseUnixRights(&all[i])
			fds = append(fds, more...)
		}
	}
	body, end, err = wire.Parse(b[:n])
	testenv.Must(r, err)
	return body, end, fds
}

// attach attaches, and maps what it gets.
func (r *raw) attach(name string) *raw {
	r.Helper()
	r.send(&wire.Hello{Name: name, Session: 7})
	body, _, fds := r.receive()
	w, is := body.(*wire.Welcome)
	if !is {
		r.Fatalf("the hello is answered with %+v", body)
	}
	at := 0
	if w.In > 0 {
		r.in = mapShared(r.T, fds[at], int(w.In), unix.PROT_READ)
		_ = unix.Close(fds[at])
		at++
	}
	if w.Out > 0 {
		r.out, r.outFD = mapShared(r.T, fds[at], int(w.Out), unix.PROT_READ|unix.PROT_WRITE), fds[at]
	}
	return r
}

func mapShared(t *testing.T, fd, size, prot int) []byte {
	t.Helper()
	b, err := unix.Mmap(fd, 0, size, prot, unix.MAP_SHARED)
	testenv.Must(t, err)
	return b
}

// open opens a port.
func (r *raw) open(flow string, role wire.Role) *raw {
	r.Helper()
	r.send(&wire.Open{Flow: flow, Role: role})
	body, _, fds := r.receive()
	o, is := body.(*wire.Opened)
	if !is {
		r.Fatalf("the port is answered with %+v", body)
	}
	r.port, r.ringFD, r.wakeFD = *o, fds[0], fds[1]
	r.memory = mapShared(r.T, fds[0], int(wire.PortLen(o.Entries)+4095)&^4095, unix.PROT_READ|unix.PROT_WRITE)
	for n := range r.rings {
		r.rings[n] = wire.NewRing(r.memory, n, o.Entries, false)
	}
	return r
}

// frame takes a frame to fill.
func (r *raw) frame() wire.Entry {
	r.Helper()
	var e wire.Entry
	testenv.Wait(r.T, testenv.Within(5*time.Second), "a frame", func() bool {
		if n, _ := r.rings[wire.RingDone].Waiting(); n == 0 {
			return false
		}
		e = r.rings[wire.RingDone].Get()
		r.rings[wire.RingDone].Advance()
		return true
	})
	return e
}

// submit puts an entry into a ring of the daemon's.
func (r *raw) submit(ring int, e wire.Entry) {
	r.rings[ring].Put(&e)
	r.rings[ring].Publish()
}

// ended waits until the daemon ends the program, and returns the reason.
func (r *raw) ended() wire.Reason {
	r.Helper()
	for {
		body, end, fds := r.receive()
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		if why, is := body.(*wire.Refusal); is && end {
			return why.Reason
		}
	}
}

const hostileFlows = "  - {name: sink, from: {attach: writer, message: 1KiB}, to: {discard: true}}\n  - {name: md, from: {generate: 200, rate: 5000}, to: {attach: reader}}\n"

// whole checks that the daemon goes on: another program sends and receives, and no frame is lost.
func whole(t *testing.T, d *flows.Daemon, dir string) {
	t.Helper()
	testenv.Wait(t, testenv.Within(5*time.Second), "the names to be free", func() bool {
		s := d.Status()
		return !s.Programs.Programs[0].Attached && !s.Programs.Programs[1].Attached && s.Region.Owners["attached"] == 0
	})
	k := attach(t, dir, "writer", 0)
	s, err := k.Send("sink", 0)
	testenv.Must(t, err)
	f, err := s.Claim()
	testenv.Must(t, err)
	if _, err := s.Commit(f, 100); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(t.Context(), testenv.Within(5*time.Second)); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}

// TestHostileEntries: each broken rule ends the program with its reason, and nobody else.
func TestHostileEntries(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir, "sleep", hostileFlows)
	send := func(change func(*wire.Entry)) func(*raw) {
		return func(r *raw) {
			e := r.frame()
			e.Length, e.Sequence = 100, r.port.Next
			change(&e)
			r.submit(wire.RingSubmitted, e)
		}
	}
	twice := func(ring int, e wire.Entry) func(*raw) {
		return func(r *raw) { r.submit(ring, e); r.submit(ring, e) }
	}
	for _, c := range []struct {
		name string
		role wire.Role
		do   func(*raw)
		want wire.Reason
	}{
		{"an offset behind the memory", wire.Send, send(func(e *wire.Entry) { e.Offset = 4 << 20 }), wire.BadDescriptor},
		{"a huge offset", wire.Send, send(func(e *wire.Entry) { e.Offset = ^uint64(0) - 4095 }), wire.BadDescriptor},
		{"an offset that wraps to the region's first frame", wire.Send, send(func(e *wire.Entry) { e.Offset = ^uint64(32<<20) + 1 }), wire.BadDescriptor},
		{"bytes of the next frame", wire.Send, send(func(e *wire.Entry) { e.Offset += 4000 }), wire.BadDescriptor},
		{"a frame of another flow's share", wire.Send, send(func(e *wire.Entry) { e.Offset = 3 << 20 }), wire.BadDescriptor},
		{"an old generation", wire.Send, send(func(e *wire.Entry) { e.Generation-- }), wire.BadGeneration},
		{"a later generation", wire.Send, send(func(e *wire.Entry) { e.Generation++ }), wire.BadGeneration},
		{"a message that is too long", wire.Send, send(func(e *wire.Entry) { e.Length = 1025 }), wire.TooLong},
		{"an empty message", wire.Send, send(func(e *wire.Entry) { e.Length = 0 }), wire.TooLong},
		{"a sequence that was", wire.Send, send(func(e *wire.Entry) { e.Sequence-- }), wire.BadSequence},
		{"a sequence that leaves one out", wire.Send, send(func(e *wire.Entry) { e.Sequence++ }), wire.BadSequence},
		{"a frame twice", wire.Send, func(r *raw) {
			e := r.frame()
			e.Length, e.Sequence = 10, r.port.Next
			again := e
			again.Sequence++
			r.rings[wire.RingSubmitted].Put(&e)
			r.rings[wire.RingSubmitted].Put(&again)
			r.rings[wire.RingSubmitted].Publish()
		}, wire.BadDescriptor},
		{"an index that is ahead", wire.Send, func(r *raw) { r.setHead(wire.RingSubmitted, uint64(r.port.Entries)+1) }, wire.BadIndex},
		{"an index that went back", wire.Send, func(r *raw) { r.setHead(wire.RingSubmitted, ^uint64(0)) }, wire.BadIndex},
		{"a tail that is ahead", wire.Receive, func(r *raw) { r.setTail(wire.RingReceived, 1<<40) }, wire.BadIndex},
		{"a frame that it does not have", wire.Receive, twice(wire.RingReleased, wire.Entry{Offset: 0, Generation: 1}), 0},
		{"the release of a frame twice", wire.Receive, func(r *raw) {
			e := r.message()
			r.submit(wire.RingReleased, e)
			r.submit(wire.RingReleased, e)
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := dialRaw(t, dir)
			if c.role == wire.Send {
				r.attach("writer").open("sink", wire.Send)
			} else {
				r.attach("reader").open("md", wire.Receive)
			}
			c.do(r)
			got := r.ended()
			if c.want == 0 && (got == wire.BadDescriptor || got == wire.BadGeneration) {
				return
			}
			if got != c.want {
				t.Errorf("it ends with %v, want %v", got, c.want)
			}
		})
	}
	whole(t, d, dir)
}

// message takes a message that was received.
func (r *raw) message() (e wire.Entry) {
	r.Helper()
	testenv.Wait(r.T, testenv.Within(5*time.Second), "a message", func() bool {
		if n, _ := r.rings[wire.RingReceived].Waiting(); n == 0 {
			return false
		}
		e = r.rings[wire.RingReceived].Get()
		r.rings[wire.RingReceived].Advance()
		return true
	})
	return e
}

func (r *raw) setHead(ring int, to uint64) { r.word(ring, 64, to) }
func (r *raw) setTail(ring int, to uint64) { r.word(ring, 128, to) }

func (r *raw) word(ring int, at int, to uint64) {
	binary.NativeEndian.PutUint64(r.memory[uint64(ring)*wire.RingLen(r.port.Entries)+uint64(at):], to)
}

// TestHostileMemory: a program that overwrites all that it can write at random, takes the pages away and changes
// the size while the daemon works cannot stop it.
func TestHostileMemory(t *testing.T) {
	dir := t.TempDir()
	d := start(t, dir, "spin", hostileFlows)
	seed := setting.Number(t, "UNIFIEDD_SEED", uint64(time.Now().UnixNano()))
	t.Logf("UNIFIEDD_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	rounds := 200
	if testing.Short() {
		rounds = 20
	}
	for range rounds {
		r := dialRaw(t, dir)
		if random.IntN(2) == 0 {
			r.attach("writer").open("sink", wire.Send)
		} else {
			r.attach("reader").open("md", wire.Receive)
		}
		for range 2000 {
			at := random.IntN(len(r.memory) / 8)
			if random.IntN(2) == 0 {
				at = random.IntN(wire.Rings)*int(wire.RingLen(r.port.Entries)/8) + 8*random.IntN(3) // indices
			}
			value := random.Uint64() >> random.IntN(64)
			binary.NativeEndian.PutUint64(r.memory[min(8*at, len(r.memory)-8):], value)
			if r.out != nil {
				r.out[random.IntN(len(r.out))] = byte(value)
			}
			if random.IntN(200) == 0 {
				_ = unix.Fallocate(r.ringFD, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(r.memory)))
			}
			if r.outFD >= 0 && random.IntN(500) == 0 {
				_ = unix.Fallocate(r.outFD, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(len(r.out)))
			}
		}
		for _, fd := range []int{r.ringFD, r.outFD} {
			if fd >= 0 && (unix.Ftruncate(fd, 0) == nil || unix.Ftruncate(fd, 1<<30) == nil) {
				t.Fatal("the program can change the size of the daemon's memory")
			}
		}
		_ = unix.SetNonblock(r.wakeFD, false) // of this end only: the daemon's never blocks
		_ = r.conn.Close()
		testenv.Wait(t, testenv.Within(5*time.Second), "the name to be free", func() bool {
			s := d.Status()
			return !s.Programs.Programs[0].Attached && !s.Programs.Programs[1].Attached
		})
	}
	whole(t, d, dir)
	s := d.Status()
	t.Logf("ended: writer %v, reader %v", s.Programs.Programs[0].Ended, s.Programs.Programs[1].Ended)
}

// TestHostileMeeting: what is no message, another version, another name and a message of the daemon's are refused with
// their reasons, and descriptors that come with them are closed.
func TestHostileMeeting(t *testing.T) {
	testenv.Leaks(t)
	dir := t.TempDir()
	d := start(t, dir, "sleep", hostileFlows)
	hello := func(change func([]byte)) []byte {
		b, err := wire.Append(nil, &wire.Hello{Name: "writer", Session: 1}, false)
		testenv.Must(t, err)
		change(b)
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		want wire.Reason
	}{
		{"no message", []byte("GET / HTTP/1.1\r\n\r\n"), wire.BadMessage},
		{"another version", hello(func(b []byte) { b[4] = 2 }), wire.BadVersion},
		{"a message of the daemon's", hello(func(b []byte) { b[5] = 2 }), wire.BadMessage},
		{"a length that is wrong", hello(func(b []byte) { b[6]++ }), wire.BadMessage},
		{"no session", hello(func(b []byte) { clear(b[8+64 : 8+72]) }), wire.BadMessage},
		{"a name without end", hello(func(b []byte) { copy(b[8:], strings.Repeat("x", 64)) }), wire.BadMessage},
		{"a name that nobody has", hello(func(b []byte) { copy(b[8:], "nobody") }), wire.BadName},
		{"a long message", make([]byte, 60000), wire.BadMessage},
	} {
		r := dialRaw(t, dir)
		pipe := make([]int, 2)
		testenv.Must(t, unix.Pipe2(pipe, unix.O_CLOEXEC))
		if _, _, err := r.conn.WriteMsgUnix(c.b, unix.UnixRights(pipe[1]), nil); err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(pipe[1])
		body, _, _ := r.receive()
		if got, is := body.(*wire.Refusal); !is || got.Reason != c.want {
			t.Errorf("%s: %+v, want %v", c.name, body, c.want)
		}
		_ = r.conn.Close()
		fds := []unix.PollFd{{Fd: int32(pipe[0]), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, int(testenv.Within(5*time.Second)/time.Millisecond)); n != 1 || err != nil || fds[0].Revents&unix.POLLHUP == 0 {
			t.Errorf("%s: the daemon keeps a descriptor that came with it", c.name)
		}
		_ = unix.Close(pipe[0])
	}
	first := dialRaw(t, dir).attach("writer")
	second := dialRaw(t, dir)
	second.send(&wire.Hello{Name: "writer", Session: 9})
	if body, _, _ := second.receive(); fmt.Sprintf("%T %v", body, body) != `*wire.Refusal busy: program "writer" is attached` {
		t.Errorf("a name that is taken: %v", body)
	}
	for _, o := range []wire.Open{{Flow: "md", Role: wire.Receive}, {Flow: "sink", Role: wire.Receive}, {Flow: "sink", Role: 9}, {Flow: "none", Role: wire.Send}} {
		first.send(&o)
		if body, _, _ := first.receive(); body.(*wire.Refusal).Reason != wire.NoSuchFlow {
			t.Errorf("%+v: %v", o, body)
		}
	}
	first.send(&wire.Open{Flow: "sink", Role: wire.Send, Depth: 1 << 30})
	if body, _, _ := first.receive(); body.(*wire.Refusal).Reason != wire.OverQuota {
		t.Errorf("a huge depth: %v", body)
	}
	_ = first.conn.Close()
	_ = second.conn.Close()
	whole(t, d, dir)
	if s := d.Status(); s.Programs.Refused["bad_message"] < 5 || s.Programs.Refused["bad_version"] != 1 || s.Programs.Refused["bad_name"] != 1 {
		t.Errorf("refused: %v", s.Programs.Refused)
	}
}

// TestAnotherUser: only processes of the configured user may use a name.
func TestAnotherUser(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		testenv.Must(t, os.Chmod(d, 0o755))
	}
	d := start(t, dir, "sleep", hostileFlows)
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		const nobody = 65534
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
			done <- errno
			return
		}
		k, err := attached.Attach(attached.Config{Socket: filepath.Join(dir, "attach.sock"), Name: "writer"})
		if err == nil {
			err = errors.Join(errors.New("it may attach"), k.Close())
		}
		done <- err
	}()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "not_permitted: no program in attach.programs is of user 65534") {
		t.Errorf("another user: %v", err)
	}
	if n := d.Status().Programs.Refused["not_permitted"]; n != 1 {
		t.Errorf("%d are counted", n)
	}
}
