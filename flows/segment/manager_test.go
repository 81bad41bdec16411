package segment

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// managerLab is a manager without a flow, in its own directory.
type managerLab struct {
	to  config.To
	dir string
	log strings.Builder
}

func newManagerLab(t *testing.T) *managerLab {
	t.Helper()
	c := &managerLab{dir: testenv.DiskDir(t)}
	c.to = config.To{File: c.dir + "/md", Segment: config.Segment{Size: config.MiB}, Prepare: config.PrepareAllocate, Layout: config.LayoutPacked}
	return c
}

// open opens the manager and closes it again without acquiring a segment.
func (c *managerLab) open(t *testing.T) error {
	t.Helper()
	s, err := Open(Config{To: c.to, Head: labHead, Log: slog.New(slog.NewTextHandler(&c.log, nil))})
	if err != nil {
		return err
	}
	return s.Close()
}

// logger returns a logger that writes to the lab's log.
func (c *managerLab) logger() *slog.Logger { return slog.New(slog.NewTextHandler(&c.log, nil)) }

func labHead(s pcapng.Segment) ([]byte, error) {
	return pcapng.AppendSegmentHead(nil, pcapng.Section{}, []pcapng.Interface{{Name: "a", LinkType: 1}}, s)
}

// labSegment returns a segment with batches of three packets each, as a crash leaves it: with
// unwritten space at the end.
func labSegment(t *testing.T, batches int) []byte {
	t.Helper()
	seg := pcapng.Segment{ID: pcapng.SegmentID{7}, Align: 512}
	b, err := labHead(seg)
	testenv.Must(t, err)
	for i := range uint64(batches) {
		at := len(b)
		b = append(b, make([]byte, pcapng.MinMarkLen)...)
		for range 3 {
			data := []byte("0123456789abcdef")
			n := pcapng.PacketBlockLen(uint32(len(data)), 4)
			b = append(b, make([]byte, n)...)
			pcapng.PutPacket(b[len(b)-int(n):], 0, 1, data, uint32(len(data)), n)
		}
		n := pcapng.PaddingLen(int64(len(b)-at), 512)
		b = append(b, make([]byte, n)...)
		pcapng.PutPadding(b[len(b)-int(n):])
		pcapng.PutBatchHeader(b[at:at+pcapng.MinMarkLen], &pcapng.Batch{
			Segment: seg.ID, Align: 512, Sequence: i + 1, Offset: uint64(at), Length: uint32(len(b) - at), Packets: 3, FirstPacket: 3 * i,
		})
	}
	return append(b, make([]byte, 100<<10)...)
}

// fill writes a batch of one packet to a segment, as the worker does.
func fill(t *testing.T, s *Segment) {
	t.Helper()
	const mark = pcapng.MinMarkLen
	data := []byte("0123456789abcdef")
	n := pcapng.PacketBlockLen(uint32(len(data)), 4)
	b := make([]byte, mark+n)
	pcapng.PutPacket(b[mark:], 0, 1, data, uint32(len(data)), n)
	pad := pcapng.PaddingLen(int64(len(b)), s.align)
	b = append(b, make([]byte, pad)...)
	pcapng.PutPadding(b[len(b)-int(pad):])
	batch := s.Batch(0, s.Last.Packets)
	batch.Length, batch.Packets = uint32(len(b)), 1
	pcapng.PutBatchHeader(b[:mark], &batch)
	f, err := s.reopenBuffered()
	testenv.Must(t, err)
	_, err = f.WriteAt(b, int64(s.Next))
	testenv.Must(t, errors.Join(err, f.Close()))
	s.Next += uint64(len(b))
	s.Sequence++
	s.Last.Packets++
}

// next acquires a segment, with a packet in it, which has its final name.
func next(t *testing.T, s *Manager) (seg *Segment) {
	t.Helper()
	testenv.Wait(t, 5e9, "a segment", func() bool { seg = s.Acquire(time.Now()); return seg != nil })
	testenv.Wait(t, 5e9, "its name", seg.NameDurable)
	fill(t, seg)
	s.Written(seg)
	return seg
}

// put makes a file in the directory.
func (c *managerLab) put(t *testing.T, name string, content []byte) {
	t.Helper()
	testenv.Must(t, os.WriteFile(filepath.Join(c.dir, name), content, 0o600))
}

// list maps the names in the directory to sizes and times.
func (c *managerLab) list(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	entries, err := os.ReadDir(c.dir)
	testenv.Must(t, err)
	for _, e := range entries {
		info, err := e.Info()
		testenv.Must(t, err)
		all[e.Name()] = fmt.Sprint(info.Size(), " ", info.ModTime().UnixNano())
	}
	return all
}

// TestStoreRecovers: Open recovers every state of a segment that a crash may leave, and leaves
// other files alone.
func TestStoreRecovers(t *testing.T) {
	c := newManagerLab(t)
	stamp := "-20260102T030405Z-"
	foreign := []string{"md-x" + stamp + "000001.pcapng", ".md-x-000009.next", "md" + stamp + "000001.pcapng.bak", "other", "md" + stamp + "1.pcapng", "md.pcapng"}
	for _, name := range foreign {
		c.put(t, name, []byte("somebody else's"))
	}
	c.put(t, "md"+stamp+"000001.pcapng", []byte("has the name of a segment, and is none"))
	c.put(t, "md"+stamp+"000002.pcapng", labSegment(t, 5))
	c.put(t, "md"+stamp+"000003.pcapng", labSegment(t, 0))
	c.put(t, ".md-000004.next", labSegment(t, 4))
	c.put(t, ".md-000005.next", labSegment(t, 0))
	c.put(t, ".md-000006.next", nil)
	before := c.list(t)
	testenv.Must(t, c.open(t))
	after := c.list(t)
	for _, name := range append(foreign, "md"+stamp+"000001.pcapng") {
		if after[name] != before[name] {
			t.Errorf("%s was %s and is %s", name, before[name], after[name])
		}
	}
	files, err := filepath.Glob(c.dir + "/md-2*.pcapng")
	if err != nil || len(files) != 4 { // 000003 has no packets
		t.Fatalf("%d files: %v", len(files), files)
	}
	for number, want := range map[string]int{"000002": 15, "000004": 12} {
		i := slices.IndexFunc(files, func(f string) bool { return strings.HasSuffix(f, number+".pcapng") })
		if i < 0 {
			t.Fatalf("number %s is missing: %v", number, files)
		}
		if got := len(captures.Packets(t, files[i])); got != want {
			t.Errorf("%s has %d packets, not %d", files[i], got, want)
		}
		captures.Readable(t, files[i])
	}
	if left, _ := filepath.Glob(c.dir + "/.md-0*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if said := c.log.String(); strings.Count(said, "segment recovered") < 3 || !strings.Contains(said, "has no readable head") {
		t.Errorf("it does not say what it did:\n%s", said)
	}
}

// TestStoreRecoversOnce: Open neither changes nor reads to its end a segment that is recovered or
// sealed.
func TestStoreRecoversOnce(t *testing.T) {
	c := newManagerLab(t)
	c.put(t, "md-20260102T030405Z-000002.pcapng", labSegment(t, 5))
	c.put(t, ".md-000004.next", labSegment(t, 4))
	testenv.Must(t, c.open(t))
	before, said := c.list(t), c.log.Len()
	for name := range before {
		f, err := os.Open(filepath.Join(c.dir, name))
		testenv.Must(t, err)
		info, _ := f.Stat()
		if done, err := pcapng.Finished(f, info.Size()); !done || err != nil {
			t.Errorf("%s does not look complete: %v", name, err)
		}
		f.Close()
	}
	testenv.Must(t, c.open(t))
	if diff := cmp.Diff(before, c.list(t)); diff != "" {
		t.Error(diff)
	}
	if c.log.Len() != said {
		t.Errorf("the second start says %s", c.log.String()[said:])
	}
}

// TestStoreNumbers: the number of the next segment follows the highest existing number, even if
// that segment was only prepared.
func TestStoreNumbers(t *testing.T) {
	for name, want := range map[string]int{
		"md-20260102T030405Z-000041.pcapng": 42, ".md-000007.next": 8, "md-20260102T030405Z-1000000.pcapng": 1000001, "md-x-20260102T030405Z-000009.pcapng": 1,
	} {
		c := newManagerLab(t)
		c.put(t, name, labSegment(t, 1))
		s, err := Open(Config{To: c.to, Head: labHead, Log: slog.New(slog.DiscardHandler)})
		testenv.Must(t, err)
		var next *Segment
		testenv.Wait(t, 5e9, "a segment", func() bool { next = s.Acquire(time.Now()); return next != nil })
		if next.Number != want {
			t.Errorf("behind %s comes %d, not %d", name, next.Number, want)
		}
		next.Damaged = true // it has no batches
		s.Retire(next)
		testenv.Check(t, s.Close())
	}
}

// TestNamesSort: sorted by name, segments are in the order in which they were written.
func TestNamesSort(t *testing.T) {
	c := newManagerLab(t)
	c.to.Segment.Keep.Count = 3
	s, err := Open(Config{To: c.to, Head: labHead, Log: slog.New(slog.DiscardHandler)})
	testenv.Must(t, err)
	var names []string
	for range 5 {
		seg := next(t, s)
		names = append(names, seg.Path())
		s.Retire(seg)
	}
	testenv.Must(t, s.Close())
	if !slices.IsSorted(names) {
		t.Errorf("%v", names)
	}
	left, _ := filepath.Glob(c.dir + "/*")
	hidden, _ := filepath.Glob(c.dir + "/.*")
	if !slices.Equal(left, names[2:]) || len(hidden) > 0 {
		t.Errorf("of %v the newest three are to be kept; there are %v %v", names, left, hidden)
	}
}

// TestKeepOne: the manager does not delete a segment that is not sealed.
func TestKeepOne(t *testing.T) {
	c := newManagerLab(t)
	c.to.Segment.Keep.Count = 1
	s, err := Open(Config{To: c.to, Head: labHead, Log: slog.New(slog.NewTextHandler(&c.log, nil))})
	testenv.Must(t, err)
	take := func() *Segment { return next(t, s) }
	files := func() []string { all, _ := filepath.Glob(c.dir + "/*.pcapng"); return all }
	before := take()
	for range 4 {
		next := take()
		testenv.Wait(t, 5e9, "one more prepared", func() bool { all, _ := filepath.Glob(c.dir + "/.*.next"); return len(all) == 1 })
		if got := files(); !slices.Equal(got, []string{before.Path(), next.Path()}) {
			t.Errorf("%s is not finished, and there are %v", before.Path(), got)
		}
		s.Retire(before)
		testenv.Wait(t, 5e9, "the older one to be removed", func() bool { return slices.Equal(files(), []string{next.Path()}) })
		before = next
	}
	s.Retire(before)
	testenv.Check(t, s.Close())
	if strings.Contains(c.log.String(), "removed") {
		t.Errorf("it says %s", c.log.String())
	}
}

// TestSegmentRemoved: the manager does not fail when a user removes an incomplete segment.
func TestSegmentRemoved(t *testing.T) {
	c := newManagerLab(t)
	s, err := Open(Config{To: c.to, Head: labHead, Log: slog.New(slog.NewTextHandler(&c.log, nil))})
	testenv.Must(t, err)
	var next *Segment
	testenv.Wait(t, 5e9, "a segment", func() bool { next = s.Acquire(time.Now()); return next != nil })
	testenv.Wait(t, 5e9, "its name", next.NameDurable)
	testenv.Must(t, os.Remove(next.Path()))
	s.Retire(next)
	testenv.Check(t, s.Close())
	if !strings.Contains(c.log.String(), "removed before it was complete") {
		t.Errorf("it says %s", c.log.String())
	}
}

// TestStoreTellsOfHeads: the manager counts files with a segment's name and no readable head for
// the status.
func TestStoreTellsOfHeads(t *testing.T) {
	c := newManagerLab(t)
	whole := labSegment(t, 5)
	whole[9] ^= 1
	for i, content := range [][]byte{whole, nil, labSegment(t, 2)} {
		c.put(t, fmt.Sprintf("md-20260102T030405Z-%06d.pcapng", i+1), content)
	}
	s, err := Open(Config{To: c.to, Head: labHead, Log: slog.New(slog.NewTextHandler(&c.log, nil))})
	testenv.Must(t, err)
	defer s.Close()
	if s.unreadable != 2 || strings.Count(c.log.String(), "has no readable head") != 2 {
		t.Errorf("%d segments are unreadable:\n%s", s.unreadable, &c.log)
	}
}

// TestStoreAmongStrangers: the manager starts although other files and directories have names of
// segments, and does not write through them.
func TestStoreAmongStrangers(t *testing.T) {
	c := newManagerLab(t)
	const stamp = "md-20260102T030405Z-"
	outside := filepath.Join(t.TempDir(), "outside")
	for _, err := range []error{
		os.WriteFile(outside, labSegment(t, 3), 0o600),
		os.Mkdir(filepath.Join(c.dir, stamp+"000001.pcapng"), 0o700),
		unix.Mkfifo(filepath.Join(c.dir, stamp+"000002.pcapng"), 0o600),
		os.Symlink(outside, filepath.Join(c.dir, stamp+"000003.pcapng")),
		os.WriteFile(filepath.Join(c.dir, stamp+"9223372036854775807.pcapng"), nil, 0o600),
	} {
		testenv.Must(t, err)
	}
	before, err := os.Stat(outside)
	testenv.Must(t, err)
	s, seg := c.started(t)
	if seg.Number != 1 {
		t.Errorf("the first segment has number %d", seg.Number)
	}
	s.Retire(seg)
	testenv.Check(t, s.Close())
	if after, err := os.Stat(outside); err != nil || after.Size() != before.Size() {
		t.Errorf("a file outside was changed: %v", err)
	}
	testenv.Must(t, os.Symlink(outside, filepath.Join(c.dir, ".md-000002.next")))
	if err := c.open(t); !errors.Is(err, os.ErrExist) {
		t.Errorf("a link in place of the next segment: %v", err)
	}
}
