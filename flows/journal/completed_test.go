package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/ring"
)

// rot is a kind of damage to the end of a segment. The segment has four batches of three records
// each, at positions 7 to 18.
type rot struct {
	harm     func(m *made)
	position uint64 // of the first record that is lost
	records  uint64
	err      error
}

var rots = map[string]rot{
	"a payload":        {func(m *made) { m.poke(3) }, 16, 1, protocol.BadPayload},
	"a mark":           {func(m *made) { m.smudge(3) }, 16, 3, ErrMissing},
	"a batch":          {func(m *made) { m.lose(3) }, 16, 3, ErrMissing},
	"a block":          {func(m *made) { m.raw[m.batches[3].offset+int(m.markLen())+4] ^= 1 }, 16, 3, ErrMissing},
	"several batches":  {func(m *made) { m.lose(1); m.smudge(2); m.lose(3) }, 10, 9, ErrMissing},
	"all batches":      {func(m *made) { m.smudge(0); m.lose(1); m.smudge(2); m.lose(3) }, 7, 12, ErrMissing},
	"all but the last": {func(m *made) { m.lose(0); m.lose(1); m.lose(2) }, 7, 9, ErrMissing},
}

// home is where a test keeps a log: in files or on a ring.
type home interface {
	put(t *testing.T, number uint64, r *run, rest func(m *made))
	mend(t *testing.T)
	path() string
}

// inFiles is a log in files.
type inFiles struct {
	prefix string
	last   int
}

func (p *inFiles) path() string { return p.prefix }

func (p *inFiles) put(t *testing.T, number uint64, r *run, rest func(m *made)) {
	m := r.file(t)
	rest(m)
	p.last = int(number)
	m.write(t, segmentPath(p.prefix, p.last))
}

func (p *inFiles) mend(t *testing.T) {
	for n := range p.last {
		mend(t, segmentPath(p.prefix, n+1))
	}
}

// onRing is a log on a ring.
type onRing struct {
	file *os.File
	ring ring.Ring
	runs map[uint64]uint64 // by run: the packet number with which it begins
	last uint64
}

func (p *onRing) path() string { return p.file.Name() }

func (p *onRing) put(t *testing.T, number uint64, r *run, rest func(m *made)) {
	if p.runs[r.number] == 0 {
		p.runs[r.number] = ring.Base(number)
	}
	m := r.segment(t, p.ring.SegmentID(number), true, p.runs[r.number])
	m.packets += r.next - r.start
	rest(m)
	p.last = number
	slot(t, p.file, p.ring, number, m)
}

// mend recovers all segments twice. The second time must find the same state as the first.
func (p *onRing) mend(t *testing.T) {
	for n := uint64(1); n <= p.last; n++ {
		for range 2 {
			c, err := pcapng.Closed(p.ring.Slot(p.file, n), int64(p.ring.Size))
			if err != nil || c.Closed && c.Batches == 0 {
				t.Fatalf("segment %d: %+v, %v", n, c, err)
			}
			r, err := pcapng.Recover(p.ring.Slot(p.file, n), pcapng.Options{Numbered: true})
			if err != nil || !r.Ended {
				t.Fatalf("segment %d: %+v, %v", n, r, err)
			}
		}
	}
}

// TestRotAtTheEnd: records lost at the end of a segment that its writer completed are a loss, not a
// crash. Readers report a gap, the log continues after it, and recovery does not change that.
func TestRotAtTheEnd(t *testing.T) {
	for name, c := range rots {
		for _, number := range []uint64{2, 3} { // both layouts
			for _, onDevice := range []bool{false, true} {
				t.Run(fmt.Sprint(name, " ", number, " ", onDevice), func(t *testing.T) {
					p := newHome(t, onDevice)
					r := newRun(number, 1)
					p.put(t, 1, r, func(m *made) { r.batch(m, 6, 0); m.end() })
					p.put(t, 2, r, func(m *made) {
						for range 4 {
							r.batch(m, 3, 0)
						}
						c.harm(m.end())
					})
					c.check(t, p, 18)
					p.mend(t)
					c.check(t, p, 18)
					later := newRun(5, 19)
					p.put(t, 3, later, func(m *made) { later.batch(m, 2, 0) })
					c.check(t, p, 20)
				})
			}
		}
	}
}

func newHome(t *testing.T, onDevice bool) home {
	if !onDevice {
		return &inFiles{prefix: filepath.Join(t.TempDir(), "wal")}
	}
	f, r := ringFile(t)
	return &onRing{file: f, ring: r, runs: map[uint64]uint64{}}
}

// check reads a log whose last position is last, and compares its gaps with the damage.
func (c *rot) check(t *testing.T, p home, last uint64) {
	t.Helper()
	all := readFrom(t, p.path(), 0)
	lost := uint64(0)
	for _, g := range all.gaps {
		lost += g.Records
	}
	if len(all.gaps) == 0 || all.gaps[0].Position != c.position || lost != c.records || !errors.Is(all.gaps[0], c.err) {
		t.Errorf("it tells %v", all.gaps)
	}
	if uint64(len(all.positions)) != last-c.records {
		t.Errorf("it has records %v", all.positions)
	}
	if end := tail(t, p.path()); end.Next != last+1 || end.Lost != c.records || len(end.Gaps) != len(all.gaps) {
		t.Errorf("it ends so: %+v", end)
	}
	if report := verify(t, p.path()); report.Lost != c.records || report.Next != last+1 || !report.Segments[1].Completed {
		t.Errorf("verified: %+v", report)
	}
}

// TestRotOfMended: recovery ended the segment, so records may be missing after its end. The log
// ends there, and readers report no gap.
func TestRotOfMended(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "wal")
	r := newVerifiedRun(2, 1)
	m := r.file(t)
	r.batch(m, 3, 0)
	r.batch(m, 3, 0)
	m.poke(1)
	m.ending(true).write(t, segmentPath(prefix, 1))
	expect(t, readFrom(t, prefix, 0), 1, 3)
	if report := verify(t, prefix); !report.Intact() || report.Next != 4 || report.Segments[0].Completed {
		t.Errorf("verified: %+v", report)
	}
}
