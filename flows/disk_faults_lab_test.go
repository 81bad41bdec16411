package flows

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// TestDiskFaults makes a flow's disk fail in many ways, while another flow on the same worker must lose
// nothing. The flow refuses to start or fails, reports the fault and its remedy, and counts the error. It
// starts again after the repair. At the end not one frame is missing.
func TestDiskFaults(t *testing.T) {
	labenv.Guest(t)
	c := newClinic(t, "", toFile)
	for _, f := range []struct {
		name string
		run  func(*testing.T, *clinic)
		long bool
	}{
		{"writes to a device", deviceWrites, true},
		{"flushes of files", fileFlushes, true},
		{"disk removed", diskRemoved, false},
		{"disk read-only", diskReadOnly, true},
		{"disks that cannot be written to", refusals, true},
		{"node removed", nodeRemoved, true},
		{"hang", hang, true},
		{"stopped while it hangs", stopHanging, true},
		{"writes to files", fileWrites, true},
		{"writes to growing files", growingFileWrites, true},
		{"flushes of a device", deviceFlushes, true},
		{"everything on a device", deviceGone, true},
		{"everything below files", filesGone, true},
		{"disk below a file system removed", fileSystemRemoved, true},
	} {
		t.Run(f.name, func(t *testing.T) {
			if f.long {
				testenv.Long(t, "make lab runs this; a disk that is removed stands for it")
			}
			f.run(t, c)
			if err := c.ill.Stop(); err != nil {
				t.Error(err)
			}
			if s := c.well.Status(); s.State != status.Running || lost(s) != 0 {
				t.Fatalf("the other flow is %s, and lost %v", s.State, s.Dropped)
			}
		})
	}
}

// shorter is the first number in the short form, and the second in the long one.
func shorter(short, all int) int {
	if testing.Short() {
		return short
	}
	return all
}

func deviceWrites(t *testing.T, c *clinic) {
	p := newPatient(t, c, false, "")
	p.falls(t, p.disk.FailWrites, "write to ", "before offset", "input/output error")
	p.recovers(t, p.disk.Mend)
}

func fileFlushes(t *testing.T, c *clinic) {
	p := newPatient(t, c, true, "")
	readOnlyFiles(t, p)
	p.falls(t, p.disk.FailFlushes, "flush ", "since the last flush may be lost", "input/output error")
	p.recovers(t, p.disk.Mend)
}

func fileWrites(t *testing.T, c *clinic) {
	p := newPatient(t, c, true, ", layout: slot")
	p.falls(t, p.disk.FailWrites)
	p.recovers(t, p.disk.Mend)
}

func growingFileWrites(t *testing.T, c *clinic) {
	p := newPatient(t, c, true, ", prepare: none")
	p.falls(t, p.disk.FailWrites)
	p.recovers(t, p.disk.Mend)
}

func deviceFlushes(t *testing.T, c *clinic) {
	p := newPatient(t, c, false, ", layout: slot")
	p.falls(t, p.disk.FailFlushes, "flush ", "since the last flush may be lost", "input/output error")
	p.recovers(t, p.disk.Mend)
}

func deviceGone(t *testing.T, c *clinic) {
	p := newPatient(t, c, false, ", layout: slot")
	p.falls(t, p.disk.Fail, "write to ", "input/output error")
	p.recovers(t, p.disk.Mend)
}

func filesGone(t *testing.T, c *clinic) {
	p := newPatient(t, c, true, "")
	p.falls(t, p.disk.Fail)
	p.recovers(t, p.disk.Mend)
}

// hang makes a disk stop answering, twice. The first time the disk recovers, the second time it fails.
func hang(t *testing.T, c *clinic) {
	p := newPatient(t, c, false, "")
	p.begins(t)
	p.disk.Hang(t)
	c.send(t, 300)
	c.becomes(t, status.Waiting, p.where(), "has completed nothing for", "operations", "lost in the kernel's rings")
	p.disk.Mend(t)
	c.becomes(t, status.Running)
	await(t, c.ill, "what waited to be durable", func(s status.Flow) bool { return s.Durable.Packets == 500 })
	p.disk.Hang(t)
	c.send(t, 300)
	c.becomes(t, status.Waiting, p.where(), "has completed nothing for")
	p.disk.Fail(t)
	p.ended(t, "write to ", "input/output error")
	p.recovers(t, p.disk.Mend)
}

// stopHanging stops a flow whose disk does not answer: the flow ends after the disk has given the flow's
// frames back.
func stopHanging(t *testing.T, c *clinic) {
	p := newPatient(t, c, false, ", layout: slot")
	p.begins(t)
	before := c.ill.drainTimeout
	c.ill.drainTimeout = 100 * time.Millisecond
	defer func() { c.ill.drainTimeout = before }()
	p.disk.Hang(t)
	c.send(t, 100)
	stopped := make(chan error, 1)
	go func() { stopped <- c.ill.Stop() }()
	await(t, c.ill, "the flow to wait for its frames", func(s status.Flow) bool {
		return s.State == status.Waiting && strings.Contains(s.Error, "operations have not completed and keep")
	})
	p.disk.Mend(t)
	err := <-stopped
	if err == nil {
		t.Fatal("it stopped as if all were written in time")
	}
	testenv.MessageNames(t, err.Error(), []string{"stop flow ill", p.where(), "did not take everything within 100ms", "200 are durable"})
	settled(t, c.ill.Status())
}

// patient is the flow "ill" with the disk that it writes to.
type patient struct {
	*clinic
	disk    *labenv.Mapped // nil: another kind of disk
	device  string         // the flow writes to it, or its file system is on it
	raw     string         // the ring is read from it
	dir     string         // where the file system is mounted; empty: there is none
	first   uint64         // number of the first packet that was sent
	durable uint64         // packets that were durable when it failed
	later   uint64         // number of the first packet sent after that
}

// newPatient makes a disk that can fail, with a file system if files is set, and configures ill to write
// there.
func newPatient(t *testing.T, c *clinic, files bool, to string) *patient {
	t.Helper()
	disk := labenv.Map(t, 64<<20)
	p := &patient{clinic: c, disk: disk, device: disk.Path, raw: disk.Path, first: c.sent}
	if files {
		p.dir = labenv.Ext4(t, disk.Path)
	}
	p.prescribed(t, "segment: {size: 8MiB}, flush: 20ms, durable: 100ms"+to)
	return p
}

// prescribed sets where and how the flow writes.
func (p *patient) prescribed(t *testing.T, how string) {
	t.Helper()
	if p.dir != "" {
		p.prescribe(t, "", "file: "+p.dir+"/ill, "+how)
		return
	}
	p.prescribe(t, "", "device: "+p.device+", "+how)
}

// where is the path that errors must name.
func (p *patient) where() string {
	if p.dir != "" {
		return p.dir
	}
	return p.device
}

// begins starts the flow, which captures 200 packets until they are durable.
func (p *patient) begins(t *testing.T) {
	t.Helper()
	p.first = p.sent
	p.start(t)
	p.capture(t, 200)
	await(t, p.ill, "200 durable packets", func(s status.Flow) bool { return s.Durable.Packets == 200 })
}

// falls makes the flow's disk fail during a capture, and checks the flow's error and counters.
func (p *patient) falls(t *testing.T, happens func(testing.TB), says ...string) {
	t.Helper()
	p.begins(t)
	happens(t)
	p.send(t, 300)
	p.ended(t, says...)
}

// ended waits until the flow has failed because of its disk, and checks its error and counters.
func (p *patient) ended(t *testing.T, says ...string) {
	t.Helper()
	p.becomes(t, status.Failed, append(says, p.where(), "start the flow again")...)
	<-p.ill.Ended()
	s := p.ill.Status()
	failures := uint64(0)
	for _, n := range s.DiskErrors {
		failures += n
	}
	if failures == 0 || s.Durable.Packets < 200 || s.Durable.Packets > s.Written.Packets {
		t.Errorf("errors %v, %d packets written, %d durable", s.DiskErrors, s.Written.Packets, s.Durable.Packets)
	}
	settled(t, s)
	free(t, p.B.Namespace, p.B.Ifname)
	p.durable, p.later = s.Durable.Packets, p.sent
}

// recovers repairs the disk and starts the flow again. It checks that the capture has the packets that were
// durable, and those sent later.
func (p *patient) recovers(t *testing.T, mend func(testing.TB)) {
	t.Helper()
	if p.dir != "" {
		labenv.Unmount(t, p.dir)
	}
	mend(t)
	if p.dir != "" {
		labenv.Mount(t, p.device, p.dir, 0)
	}
	p.start(t)
	p.capture(t, 100)
	testenv.Must(t, p.ill.Stop())
	p.keeps(t, p.found(t))
}

// found are the packets on the disk.
func (p *patient) found(t *testing.T) [][]byte {
	t.Helper()
	if p.dir == "" {
		return captures.Packets(t, captures.ExportRing(t, p.raw))
	}
	files, _ := filepath.Glob(p.dir + "/ill-*.pcapng")
	return captures.Packets(t, files...)
}

// keeps checks that got ends with the packets that were durable before the disk failed, perhaps more of those
// sent before it failed, and all that were sent later.
func (p *patient) keeps(t *testing.T, got [][]byte) {
	t.Helper()
	for len(got) > 0 {
		if n, _ := testenv.Sequence(got[0]); n >= p.first {
			break
		}
		got = got[1:] // of an earlier capture
	}
	later := p.sent - p.later
	if uint64(len(got)) < p.durable+later {
		t.Fatalf("%d packets are there; %d were durable, and %d came later", len(got), p.durable, later)
	}
	inSequence(t, got[:p.durable], p.first, p.durable)
	inSequence(t, got[uint64(len(got))-later:], p.later, later)
	last := uint64(0)
	for i, packet := range got {
		n, ok := testenv.Sequence(packet)
		if !ok || !testenv.Intact(packet) || i > 0 && n <= last {
			t.Fatalf("packet %d has number %d, after %d", i, n, last)
		}
		last = n
	}
}
