package flows

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
)

// usage is how many descriptors and how much memory a process has.
type usage struct {
	fds  int
	anon uint64 // bytes of private memory, without the region
}

func usageNow(t *testing.T) (n usage) {
	t.Helper()
	runtime.GC()
	entries, err := os.ReadDir("/proc/self/fd")
	testenv.Must(t, err)
	n.fds = len(entries)
	status, err := os.ReadFile("/proc/self/status")
	testenv.Must(t, err)
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			_, err = fmt.Sscanf(rest, "%d kB", &n.anon)
			n.anon <<= 10
		}
	}
	if err != nil || n.anon == 0 {
		t.Fatalf("the memory of the process is not told: %v", err)
	}
	return n
}

// TestRingSpan writes segments with keep_free, so that the oldest ones are removed again and again. No packet
// is lost, the newest packets are left without a gap, and memory, descriptors and disk usage do not grow.
// UNIFIEDD_RING is the duration in seconds. UNIFIEDD_RATE is the rate in packets of 1400 bytes a second; 0:
// as many as the disk takes.
func TestRingSpan(t *testing.T) {
	testenv.Long(t, "its subject is a rate that the disk must keep")
	testenv.Root(t)
	testenv.Leaks(t)
	span, rate := time.Duration(setting.Number(t, "UNIFIEDD_RING", 4))*time.Second, setting.Number(t, "UNIFIEDD_RATE", 8000)
	disk, keep, segment, extents := uint64(96<<20), uint64(32<<20), "4MiB", 64
	if span > time.Minute {
		disk, keep, segment, extents = 8<<30, 1<<30, "256MiB", 512
	}
	region := uint64(2*extents+64) << 20
	testenv.HugePages(t, region+8<<20)
	l := &lab{Pair: &testenv.Pair{}, dir: testenv.Ext4(t, disk)}
	low := lowest(t, l.dir)
	d := l.open(t, fmt.Sprintf("{region: {size: %d, extents: %d}, flows: [{name: f, from: {generate: 1400, rate: %d}, to: {file: %s/cap, segment: {size: %s}, keep_free: %d}}]}", region, extents, rate, l.dir, segment, keep), Options{})
	f := d.Flows()[0]
	testenv.Must(t, f.Start())
	await(t, f, "a segment to be removed", func(s status.Flow) bool { return span > time.Minute || s.Removed["keep_free"] > 0 })
	time.Sleep(span / 4)
	before, held := usageNow(t), f.Status().Held
	for end := time.Now().Add(span * 3 / 4); time.Now().Before(end) && !t.Failed(); time.Sleep(span / 50) {
		if s := f.Status(); s.State != status.Running || lost(s) > 0 || s.Floor.Pauses > 0 {
			t.Errorf("%s, %v lost, %+v; the worker was away: %+v", s.State, s.Dropped, s.Floor, d.Status().Workers[0].Away)
		}
		if h := f.Status().Held; span <= time.Minute && h.Segments > held.Segments+2 {
			t.Errorf("%d segments, and %d before", h.Segments, held.Segments)
		}
	}
	after := usageNow(t)
	s := stopped(t, f)
	t.Logf("the worker was away: %+v", d.Status().Workers[0].Away)
	t.Logf("%d packets in %d segments, %d of which were removed; the disk was full in %d rounds; %d bytes of memory before, %d after; %d descriptors, %d", s.Packets, s.Segments, s.Removed["keep_free"], s.Stalls, before.anon, after.anon, before.fds, after.fds)
	if after.fds > before.fds+4 || after.anon > before.anon+32<<20 { // allow for a segment that begins
		t.Errorf("grown: %+v, %+v before", after, before)
	}
	if n := low(); n < keep {
		t.Errorf("%d bytes were free, and %d were to stay", n, keep)
	}
	if s.Removed["keep_free"] == 0 || s.Removed["keep_free"]+s.Held.Segments != s.Segments {
		t.Errorf("%d segments, %v removed, %d held", s.Segments, s.Removed, s.Held.Segments)
	}
	newest(t, l.files(t), s.Packets)
}

// newest checks that the files have the last packets up to number made, without a gap.
func newest(t *testing.T, files []string, made uint64) {
	t.Helper()
	next, begun := uint64(0), false
	for _, name := range files {
		f, err := os.Open(name)
		testenv.Must(t, err)
		size, _ := f.Seek(0, io.SeekEnd)
		_, err = pcapng.Read(f, size, pcapng.Options{}, func(_ pcapng.Batch, data []byte) error {
			return pcapng.EachPacket(data, func(p pcapng.Packet) error {
				n := binary.BigEndian.Uint64(p.Data[42:])
				if begun && n != next {
					return fmt.Errorf("packet %d follows %d", n, next-1)
				}
				begun, next = true, n+1
				return nil
			})
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		_ = f.Close()
	}
	if next != made+1 { // they are numbered from 1
		t.Errorf("the last packet is %d, and %d were made", next-1, made)
	}
}
