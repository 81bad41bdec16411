package flows

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// settings returns a configuration with one flow to files called cap.
func (l *lab) settings(to string) string {
	return fmt.Sprintf(`
region: {size: 64MiB, extent: 512KiB, extents: 16}
flows:
  - name: cap
    from: {interface: %s, ring: 4096}
    to: {file: %s/cap, %s}
`, l.B.Ifname, l.dir, to)
}

// watched sends n packets, numbered from first, and waits until all are received. All the time it checks the
// positions in the status.
func (l *lab) watched(t *testing.T, f *Flow, first uint64, n int) status.Flow {
	t.Helper()
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		watchPositions(t, f, quit)
	}()
	before := f.Status().Packets
	l.feed(t, f, testenv.Stream(&l.A, &l.B, 5000, first, n, 1400), 15000)
	s := await(t, f, "the packets", func(s status.Flow) bool { return s.Packets+s.Dropped["lost_ring_full"] >= before+uint64(n) })
	close(quit)
	<-done
	if s.Packets != before+uint64(n) {
		t.Fatalf("the machine was too slow for this test: %v", s.Dropped)
	}
	return s
}

// watchPositions checks each status of a flow against the one before, until quit.
func watchPositions(t *testing.T, f *Flow, quit <-chan struct{}) {
	last := f.Status()
	for {
		s := f.Status()
		if s.Durable.Packets > s.Written.Packets || s.Durable.Bytes > s.Written.Bytes || s.Written.Packets > s.Packets {
			t.Errorf("%d received, written %+v, durable %+v", s.Packets, s.Written, s.Durable)
		}
		if s.Durable.Packets < last.Durable.Packets || s.Written.Packets < last.Written.Packets || s.Segments < last.Segments {
			t.Errorf("went back: from %+v to %+v", last, s)
		}
		last = s
		select {
		case <-quit:
			return
		case <-time.After(500 * time.Microsecond):
		}
	}
}

// stopped stops a flow and checks that everything it received is durable.
func stopped(t *testing.T, f *Flow) status.Flow {
	t.Helper()
	testenv.Must(t, f.Stop())
	s := f.Status()
	if s.Durable != s.Written || s.Durable.Packets != s.Packets || s.State != status.Stopped {
		t.Errorf("after stopping: %s, %d received, written %+v, durable %+v", s.State, s.Packets, s.Written, s.Durable)
	}
	return s
}

// complete checks that every file ends as a complete segment does, and returns
// their total size.
func complete(t *testing.T, files []string) (size int64) {
	t.Helper()
	for _, name := range files {
		f, err := os.Open(name)
		testenv.Must(t, err)
		defer f.Close()
		info, err := f.Stat()
		testenv.Must(t, err)
		if done, err := pcapng.Finished(f, info.Size()); !done || err != nil {
			t.Errorf("%s is not complete: %v", name, err)
		}
		size += info.Size()
	}
	return size
}

// TestRotateBySize: a flow loses no packet between segments, and continues behind its segments after a
// restart.
func TestRotateBySize(t *testing.T) {
	for _, to := range some("layout: packed, prepare: allocate", "layout: packed, prepare: none", "layout: slot, prepare: zero") {
		t.Run(strings.ReplaceAll(to, ", ", " "), func(t *testing.T) {
			if !strings.Contains(to, "slot") {
				testenv.Long(t, "the slot layout stands for the others")
			}
			l := newLab(t, testenv.PairOptions{NoAddresses: true})
			f := l.start(t, l.settings(to+", segment: {size: 1MiB}, flush: 20ms, durable: 10ms"), Options{}).Flows()[0]
			for run := range uint64(2) {
				if run > 0 {
					l.begin(t, f.Start)
				}
				l.watched(t, f, run*6000, 6000)
				stopped(t, f)
			}
			files := l.files(t)
			if len(files) < 16 {
				t.Errorf("12000 packets of 1400 bytes are in %d segments of 1 MiB", len(files))
			}
			for i, name := range files {
				if want := fmt.Sprintf("-%06d.pcapng", i+1); !strings.HasSuffix(name, want) {
					t.Errorf("segment %d is called %s", i+1, name)
				}
				if info, err := os.Stat(name); err != nil || info.Size() > 1<<20 {
					t.Errorf("%s: %d bytes, %v", name, info.Size(), err)
				}
			}
			inSequence(t, captures.Packets(t, files...), 0, 12000)
			complete(t, files)
			captures.Readable(t, files[0], files[len(files)-1])
		})
	}
}

// TestRotateByTime: a flow begins a new segment every second while packets arrive.
func TestRotateByTime(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	f := l.start(t, l.settings("segment: {size: 16MiB, every: 1s}, flush: 50ms, durable: 50ms"), Options{}).Flows()[0]
	for i := range uint64(25) {
		testenv.SendRaw(t, &l.A, testenv.Stream(&l.A, &l.B, 5000, 20*i, 20, 200), testenv.SendOptions{})
		time.Sleep(100 * time.Millisecond)
	}
	await(t, f, "the packets", func(s status.Flow) bool { return s.Packets == 500 })
	s := stopped(t, f)
	files := l.files(t)
	if len(files) < 3 || len(files) > 6 || uint64(len(files)) != s.Segments {
		t.Errorf("2.5 seconds are in %d segments of a second; the status says %d", len(files), s.Segments)
	}
	inSequence(t, captures.Packets(t, files...), 0, 500)
	complete(t, files)
}

// TestKeep: a flow keeps exactly as many of its newest segments as configured. It does not touch the files of
// another flow whose name begins like its own.
func TestKeep(t *testing.T) {
	c := newClinic(t, "", "file: DIR/well-x, segment: {size: 1MiB, keep: 1}, flush: 20ms, durable: 50ms") // the other flow's is "well"
	foreign := filepath.Join(c.dir, "well-x-y-20200101T000000Z-000001.pcapng")
	testenv.Must(t, os.WriteFile(foreign, []byte("somebody else's"), 0o600))
	for run := range 2 {
		c.start(t)
		for range 4 {
			c.capture(t, 1000)
		}
		s := stopped(t, c.ill)
		files, _ := filepath.Glob(c.dir + "/well-x-2*.pcapng")
		if len(files) != 1 || s.Segments < 4 {
			t.Fatalf("one of %d segments is to be kept; there are %v", s.Segments, files)
		}
		got := captures.Packets(t, files...)
		inSequence(t, got, uint64(4000*(run+1)-len(got)), uint64(len(got)))
		complete(t, files)
	}
	if b, err := os.ReadFile(foreign); err != nil || string(b) != "somebody else's" {
		t.Errorf("a file of somebody else: %q, %v", b, err)
	}
	testenv.Check(t, os.Remove(foreign))
	kept, _ := filepath.Glob(c.dir + "/well-x-*")
	for _, name := range kept { // the check at the end expects only files of well
		testenv.Check(t, os.Remove(name))
	}
}

// TestExact: a capture to exactly one file replaces the file that was there and grows it. At the end the file
// ends where its content ends.
func TestExact(t *testing.T) {
	for _, layout := range some(config.LayoutPacked, config.LayoutSlot) {
		t.Run(string(layout), func(t *testing.T) {
			if layout == config.LayoutSlot {
				testenv.Long(t, "the packed layout stands for this one")
			}
			l := newLab(t, testenv.PairOptions{NoAddresses: true})
			name := filepath.Join(l.dir, "one.pcapng")
			testenv.Must(t, os.WriteFile(name, []byte("an older capture"), 0o600))
			d := l.open(t, l.settings("flush: 20ms, durable: 20ms"), Options{})
			f := d.Flows()[0]
			f.config.To.Exact, f.config.To.File, f.config.To.Layout = true, name, layout
			l.begin(t, f.Start)
			s := l.watched(t, f, 0, 4000)
			s = stopped(t, f)
			inSequence(t, captures.Packets(t, name), 0, 4000)
			if size := complete(t, []string{name}); uint64(size) > s.Durable.Offset+4096 {
				t.Errorf("the file has %d bytes, its content ends at %d", size, s.Durable.Offset)
			}
			if s.Segments != 1 || s.Durable.File != name {
				t.Errorf("%d segments, %s", s.Segments, s.Durable.File)
			}
			captures.Readable(t, name)
			for _, other := range []string{l.dir, "/dev/null"} {
				f.config.To.File = other
				l.B.Do(t, func() {
					if err := f.Start(); err == nil || !strings.Contains(err.Error(), other) || !strings.Contains(err.Error(), "not a regular file") {
						t.Errorf("%s: %v", other, err)
					}
				})
			}
		})
	}
}

// TestDurable: with an interval, packets become durable while the flow runs. With "written", only complete
// segments become durable before the flow stops.
func TestDurable(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	f := l.start(t, l.settings("segment: {size: 32MiB}, flush: 20ms, durable: 50ms"), Options{}).Flows()[0]
	l.watched(t, f, 0, 500)
	await(t, f, "all packets durable", func(s status.Flow) bool { return s.Durable.Packets == 500 })
	stopped(t, f)
	f.config.To.Durable = config.Written
	l.begin(t, f.Start)
	l.watched(t, f, 500, 500)
	await(t, f, "all packets written", func(s status.Flow) bool { return s.Written.Packets == 500 })
	time.Sleep(300 * time.Millisecond)
	if s := f.Status(); s.Durable.Packets != 0 {
		t.Errorf("nobody asked for %d durable packets", s.Durable.Packets)
	}
	stopped(t, f)
	inSequence(t, captures.Packets(t, l.files(t)...), 0, 1000)
}

// TestSlowDisk stops the disk for a while, again and again, also while segments change. The flow loses no
// packet that the rings and the region hold, and calls no packet durable that is not.
func TestSlowDisk(t *testing.T) {
	for _, layout := range oneOf(t, layouts...) {
		t.Run(layout, func(t *testing.T) {
			l := newLab(t, testenv.PairOptions{NoAddresses: true})
			l.dir = testenv.Ext4(t, 48<<20)
			f := l.start(t, l.settings("prepare: allocate, segment: {size: 1MiB}, flush: 10ms, durable: 5ms, layout: "+layout), Options{}).Flows()[0]
			stop := make(chan struct{})
			done := make(chan struct{})
			go func() {
				defer close(done)
				stutter(t, l.dir, stop)
			}()
			for i := range uint64(6) {
				l.watched(t, f, 1000*i, 1000)
			}
			close(stop)
			<-done
			s := stopped(t, f)
			if s.Segments < 8 {
				t.Errorf("%d segments", s.Segments)
			}
			files := l.files(t)
			inSequence(t, captures.Packets(t, files...), 0, 6000)
			complete(t, files)
		})
	}
}

// stutter freezes and thaws a file system until stop is closed. A frozen file system lets no write begin.
func stutter(t *testing.T, dir string, stop <-chan struct{}) {
	for {
		thaw, err := testenv.Freeze(dir)
		if err != nil {
			t.Error(err)
			return
		}
		time.Sleep(40 * time.Millisecond)
		if err := thaw(); err != nil {
			t.Error(err)
			return
		}
		select {
		case <-stop:
			return
		case <-time.After(60 * time.Millisecond):
		}
	}
}
