package flows

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// freeOf returns how many bytes are free in the file system of a directory; 0 if the kernel does not say.
func freeOf(dir string) uint64 {
	var st unix.Statfs_t
	_ = unix.Statfs(dir, &st)
	return st.Bavail * uint64(st.Bsize)
}

// lowest watches the free space until stop is called. stop returns the lowest value it saw.
func lowest(t *testing.T, dir string) (stop func() uint64) {
	quit, done, low := make(chan struct{}), make(chan struct{}), freeOf(dir)
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			case <-time.After(time.Millisecond):
				low = min(low, freeOf(dir))
			}
		}
	}()
	stop = sync.OnceValue(func() uint64 { close(quit); <-done; return low })
	t.Cleanup(func() { stop() })
	return stop
}

// takeRoom grows a file until only leave bytes are free, and returns its name.
func takeRoom(t *testing.T, dir string, leave uint64) (name string) {
	t.Helper()
	name = filepath.Join(dir, "ballast")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	testenv.Must(t, err)
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if free := freeOf(dir); err == nil && free > leave {
		err = unix.Fallocate(int(f.Fd()), 0, size, int64(free-leave))
	}
	if err != nil && !errors.Is(err, unix.ENOSPC) { // the flow took it
		t.Fatal(err)
	}
	return name
}

// TestFloor: a flow with keep_free removes its oldest segments to keep that much space free. If other files
// take the space, the flow removes all complete segments. Then it writes nothing until there is space, and
// its status says so.
func TestFloor(t *testing.T) {
	const floor, segment = 16 << 20, 4 << 20
	testenv.Root(t)
	testenv.Leaks(t)
	testenv.HugePages(t, 100<<20)
	l := &lab{Pair: &testenv.Pair{}, dir: testenv.Ext4(t, 64<<20)}
	stop := lowest(t, l.dir)
	d := l.open(t, fmt.Sprintf("{region: {size: 64MiB}, flows: [{name: f, from: {generate: 1000, rate: 20000}, to: {file: %s/cap, segment: {size: 4MiB}, keep_free: 16MiB, flush: 20ms, durable: 50ms}}]}", l.dir), Options{})
	f := d.Flows()[0]
	testenv.Must(t, f.Start())
	s := await(t, f, "segments to be removed for others", func(s status.Flow) bool { return s.Removed["keep_free"] > 3 })
	if s.State != status.Running || s.Floor.Pauses != 0 || s.Floor.Bytes != floor || s.Held.Segments < 5 {
		t.Errorf("%s, %+v, %+v", s.State, s.Floor, s.Held)
	}
	if low := stop(); low < floor {
		t.Errorf("%d bytes were free, and %d were to stay", low, floor)
	}
	ballast := ""
	s = await(t, f, "the flow to wait", func(s status.Flow) bool {
		ballast = takeRoom(t, l.dir, segment)
		return s.State == status.Waiting && s.Floor.Paused > 0
	})
	if !strings.Contains(s.Error, "keep_free") || !strings.Contains(s.Error, "16MiB") || s.Cause != status.DiskFull || s.Floor.Size < s.Floor.Free {
		t.Errorf("it says %q, %q, %+v", s.Error, s.Cause, s.Floor)
	}
	segments, written := s.Segments, s.DiskBytes
	time.Sleep(300 * time.Millisecond)
	if s := f.Status(); s.Segments != segments || s.DiskBytes > written+segment {
		t.Errorf("it goes on: %d segments, %d bytes", s.Segments-segments, s.DiskBytes-written)
	}
	testenv.Must(t, os.Remove(ballast))
	s = await(t, f, "the flow to go on", func(s status.Flow) bool { return s.State == status.Running && s.Segments > segments+2 })
	if s.Floor.Pauses == 0 || s.Dropped["lost_ring_full"] != 0 {
		t.Errorf("%+v, %v", s.Floor, s.Dropped)
	}
	if s = stopped(t, f); s.Packets == 0 {
		t.Error("nothing was made")
	}
	complete(t, l.files(t))
}

// TestFloorOfOneFile: the only file of a capture grows until exactly keep_free bytes are left, and grows on
// when there is more space.
func TestFloorOfOneFile(t *testing.T) {
	const floor = 16 << 20
	testenv.Root(t)
	testenv.Leaks(t)
	testenv.HugePages(t, 100<<20)
	l := &lab{Pair: &testenv.Pair{}, dir: testenv.Ext4(t, 48<<20)}
	ballast := takeRoom(t, l.dir, floor+(6<<20))
	d := l.open(t, fmt.Sprintf("{region: {size: 64MiB}, flows: [{name: f, from: {generate: 1000, rate: 4000}, to: {file: %s/one, keep_free: 16MiB, flush: 20ms, durable: 50ms}}]}", l.dir), Options{})
	f := d.Flows()[0]
	f.config.To.Exact = true
	stop := lowest(t, l.dir)
	testenv.Must(t, f.Start())
	s := await(t, f, "the flow to wait", func(s status.Flow) bool { return s.State == status.Waiting && s.Floor.Pauses > 0 })
	if s.Durable.Offset < 1<<20 || s.Durable.Offset > 6<<20 {
		t.Errorf("it wrote %d bytes, and there was room for 6 MiB", s.Durable.Offset)
	}
	testenv.Must(t, os.Remove(ballast))
	await(t, f, "the flow to go on", func(s status.Flow) bool { return s.Durable.Offset > 7<<20 })
	stopped(t, f)
	if low := stop(); low < floor {
		t.Errorf("%d bytes were free, and %d were to stay", low, floor)
	}
	complete(t, []string{filepath.Join(l.dir, "one")})
}

// TestOwner: files have the configured owner and mode. A flow with an unknown owner does not start.
func TestOwner(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	testenv.HugePages(t, 100<<20)
	l := &lab{Pair: &testenv.Pair{}, dir: testenv.DiskDir(t)}
	d := l.open(t, fmt.Sprintf("{region: {size: 64MiB}, flows: [{name: f, from: {generate: 1000, rate: 1000}, to: {file: %s/cap, segment: {size: 1MiB}, mode: 0604, owner: \"daemon:2\", flush: 20ms}}]}", l.dir), Options{})
	f := d.Flows()[0]
	testenv.Must(t, f.Start())
	await(t, f, "two segments", func(s status.Flow) bool { return s.Segments >= 2 })
	stopped(t, f)
	for _, name := range l.files(t) {
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err != nil || st.Uid != 1 || st.Gid != 2 || st.Mode&0o777 != 0o604 {
			t.Errorf("%s: user %d, group %d, mode %o: %v", name, st.Uid, st.Gid, st.Mode, err)
		}
	}
	f.config.To.Owner = "nobody-is-called-so"
	if err := f.Start(); err == nil || !strings.Contains(err.Error(), "nobody-is-called-so") {
		t.Errorf("an owner that is not there: %v", err)
	}
}
