package soak

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/unifiedd/unifiedd/flows/journal"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// captures verifies the segments of the capture. It removes complete ones, so that a small disk is enough.
type captures struct {
	t       *testing.T
	dir     string
	device  string // of a ring instead of files in the directory; empty: files
	packets uint64 // packets found, every byte of them verified
	last    uint64 // number of the last packet
	missing uint64 // numbers missing before last
}

func followCaptures(t *testing.T, dir string) *captures { return &captures{t: t, dir: dir} }

// look verifies the segments that are older than the one before durable. If durable is empty, it
// verifies all.
func (c *captures) look(durable string) {
	c.t.Helper()
	if c.device != "" {
		if durable == "" {
			c.export()
		}
		return
	}
	files, err := filepath.Glob(filepath.Join(c.dir, "capture-*.pcapng"))
	testenv.Must(c.t, err)
	slices.Sort(files)
	if durable != "" {
		files = files[:max(0, slices.Index(files, durable)-1)]
	}
	for _, name := range files {
		found, err := testenv.ReadCapture(c.t, name)
		testenv.Checkf(c.t, err, "%s: after %d packets", name, len(found))
		for _, p := range found {
			c.came(name, p.Data)
		}
		testenv.Check(c.t, os.Remove(name))
	}
}

// export verifies the ring on the device. The device is large enough for all packets of the test.
func (c *captures) export() {
	c.t.Helper()
	name := filepath.Join(c.t.TempDir(), "export.pcapng")
	if out, err := exec.Command(program, "export", "-r", c.device, "-w", name).CombinedOutput(); err != nil {
		c.t.Fatalf("export %s: %v\n%s", c.device, err, out)
	}
	found, err := testenv.ReadCapture(c.t, name)
	testenv.Checkf(c.t, err, "%s: after %d packets", name, len(found))
	for _, p := range found {
		c.came(c.device, p.Data)
	}
}

func (c *captures) came(name string, packet []byte) {
	n, ok := testenv.Sequence(packet)
	if !ok || !testenv.Intact(packet) || n <= c.last {
		c.t.Errorf("%s: packet %d behind packet %d is not what was sent", name, n, c.last)
		return
	}
	c.packets, c.missing, c.last = c.packets+1, c.missing+n-c.last-1, n
}

// records verifies the log while the flow writes it.
type records struct {
	t        *testing.T
	log      *journal.Log
	from     *journal.Reader
	last     map[uint64]uint64 // number of the last message, by seed
	count    uint64
	repeated uint64
}

func followRecords(t *testing.T, device string) *records {
	t.Helper()
	l, err := journal.Open(device)
	testenv.Must(t, err)
	r := &records{t: t, log: l, from: l.Reader(0), last: map[uint64]uint64{}}
	t.Cleanup(func() {
		testenv.Check(t, errors.Join(r.from.Close(), l.Close()))
	})
	return r
}

// look verifies the records that are there. With all it reads to the end of the log.
func (r *records) look(all bool) {
	r.t.Helper()
	next := r.from.Poll
	if all {
		next = r.from.Next
	}
	for {
		m, err := next()
		if errors.Is(err, io.EOF) {
			return
		}
		testenv.Mustf(r.t, err, "the log, behind record %d", r.count)
		seed, n, err := readMessage(m.Payload)
		if err != nil {
			r.t.Errorf("position %d of the log: %v", m.Position, err)
			continue
		}
		r.count++
		if n <= r.last[seed] {
			r.repeated++
			continue
		}
		if n != r.last[seed]+1 {
			r.t.Errorf("position %d of the log has message %d of seed %d behind message %d", m.Position, n, seed, r.last[seed])
		}
		r.last[seed] = n
	}
}
