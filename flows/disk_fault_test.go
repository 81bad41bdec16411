package flows

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
)

// TestDiskError: when a device fails permanently, the flow fails, and the device has every durable packet. It
// is a zram device whose memory limit makes writes fail.
func TestDiskError(t *testing.T) {
	dev := testenv.Zram(t, 64<<20)
	c := newClinic(t, "", "device: "+dev+", segment: {size: 8MiB}, flush: 20ms, durable: 50ms")
	c.start(t)
	c.capture(t, 100)
	await(t, c.ill, "100 durable packets", func(s status.Flow) bool { return s.Durable.Packets == 100 })
	testenv.Must(t, os.WriteFile("/sys/block/"+filepath.Base(dev)+"/mem_limit", []byte("4096"), 0))
	c.send(t, 5000)
	s := c.becomes(t, status.Failed, "write to "+dev+" before offset", "input/output error", "lost and counted", "kernel's log", "start the flow again")
	if s.DiskErrors["EIO"] == 0 {
		t.Errorf("errors of the disk: %v", s.DiskErrors)
	}
	if s.Durable.Packets < 100 || s.Durable.Packets > s.Written.Packets || s.Packets < s.Written.Packets+s.Dropped["write_failed"] {
		t.Errorf("%d received, %d written, %d durable, %d lost", s.Packets, s.Written.Packets, s.Durable.Packets, s.Dropped["write_failed"])
	}
	free(t, c.B.Namespace, c.B.Ifname)
	inSequence(t, captures.Packets(t, captures.ExportRing(t, dev))[:s.Durable.Packets], 0, s.Durable.Packets)
}

// TestDeviceOutOfRoom: when a device runs out of storage, such as one with thin provisioning, the flow waits
// for space as it does with a file system.
func TestDeviceOutOfRoom(t *testing.T) {
	small := testenv.Ext4(t, 16<<20)
	back := filepath.Join(small, "back")
	testenv.Must(t, os.WriteFile(back, nil, 0o600))
	testenv.Must(t, os.Truncate(back, 64<<20))
	dev := testenv.Loop(t, back, 0)
	passErrorsOn(t, dev)
	c := newClinic(t, "", "device: "+dev+", segment: {size: 8MiB}, flush: 20ms, durable: 50ms")
	c.start(t)
	c.capture(t, 100)
	// The loop device reports a write as done although there was space only for its first part.
	await(t, c.ill, "100 durable packets", func(s status.Flow) bool { return s.Durable.Packets == 100 })
	// The head of the next segment is written through the page cache. A write without space would fail there
	// permanently.
	testenv.Wait(t, 10*time.Second, "the next segment's head", func() bool { return slices.Contains(captures.Generations(t, dev), 2) })
	ballast := fill(t, small)
	c.send(t, 1000)
	c.becomes(t, status.Waiting, "write to "+dev, "no space left", "make room")
	testenv.Must(t, os.Remove(ballast))
	c.becomes(t, status.Running)
	await(t, c.ill, "what waited in the rings", func(s status.Flow) bool { return s.Packets == 1100 })
	testenv.Must(t, c.ill.Stop())
	inSequence(t, inTurn(captures.Packets(t, captures.ExportRing(t, dev))), 0, 1100)
}

// passErrorsOn makes a loop device fail with the error of its file. In older kernels loop devices do so only
// with direct I/O (loop_handle_cmd in drivers/block/loop.c).
func passErrorsOn(t *testing.T, device string) {
	t.Helper()
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	testenv.Must(t, err)
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), unix.LOOP_SET_DIRECT_IO, 1); err != nil {
		t.Fatalf("have %s write directly: %v", device, err)
	}
}

// fill fills a file system with one file and returns the file's name.
func fill(t *testing.T, dir string) (ballast string) {
	t.Helper()
	ballast = filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	testenv.Must(t, err)
	defer f.Close()
	end := int64(0)
	for size := int64(1 << 20); size >= 512; size /= 2 {
		for ; err == nil; end += size {
			err = unix.Fallocate(int(f.Fd()), 0, end, size)
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		err, end = nil, end-size
	}
	return ballast
}

func TestDiskFullAtStart(t *testing.T) {
	full := testenv.Ext4(t, 8<<20)
	c := newClinic(t, "", "file: "+full+"/ill, segment: {size: 32MiB}, prepare: allocate")
	err := c.try(t)
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("start: %v", err)
	}
	testenv.MessageNames(t, err.Error(), []string{"start flow ill", full, "no space left", "bytes free", "make room"})
	if s := c.ill.Status(); s.State != status.Failed || s.Error != err.Error() {
		t.Errorf("%s: %s", s.State, s.Error)
	}
	if left, _ := os.ReadDir(full); len(left) > 1 { // lost+found
		t.Errorf("left behind: %v", left)
	}
	free(t, c.B.Namespace, c.B.Ifname)
}

// TestDiskFull: when the disk fills up while the flow runs, the flow waits until there is space again. The
// files then have every packet that was received, and all other packets are counted as lost.
func TestDiskFull(t *testing.T) {
	for name, ends := range map[string][2]string{
		"prepared segments": {"", "segment: {size: 2MiB}, prepare: allocate"},
		"growing slots":     {"", "segment: {size: 64MiB}, prepare: none, layout: slot"},
		"packet socket":     {packetSocket, "segment: {size: 8MiB}, prepare: none"},
	} {
		t.Run(name, func(t *testing.T) {
			if ends[0] == "" {
				testenv.Long(t, "TestStopWhileFull and TestDeviceOutOfRoom wait for room as well")
			} else if granted.cards {
				t.Skip("a packet socket has copies of the kernel, which look the same whatever the card")
			}
			small := testenv.Ext4(t, 24<<20)
			c := newClinic(t, ends[0], "file: "+small+"/ill, flush: 20ms, durable: 50ms, "+ends[1])
			c.start(t)
			c.capture(t, 1000)
			ballast := fill(t, small)
			for i := 0; i < 20 && c.ill.Status().State == status.Running; i++ {
				c.send(t, 500)
			}
			c.becomes(t, status.Waiting, small, "no space left", "make room")
			c.send(t, 6000) // more than fit the rings
			s := c.ill.Status()
			if s.Durable.Packets > s.Written.Packets || s.Written.Packets > s.Packets || s.Buffer != nil && s.Buffer.Held == 0 {
				t.Errorf("%+v, buffer %+v", s, s.Buffer)
			}
			testenv.Must(t, os.Remove(ballast))
			c.becomes(t, status.Running)
			await(t, c.ill, "what waited to be written", func(s status.Flow) bool {
				return s.Waiting == 0 && s.Durable.Packets == s.Packets && (s.Packets == c.sent || !granted.patient)
			})
			c.capture(t, 500)
			testenv.Must(t, c.ill.Stop())
			c.complete(t, small)
		})
	}
}

// complete checks that ill's files in a directory hold every packet that was not
// counted as lost, in order.
func (c *clinic) complete(t *testing.T, dir string) {
	t.Helper()
	s := c.ill.Status()
	lost := s.Dropped["lost_ring_full"] + s.Dropped["lost_no_frames"] + s.Dropped["buffer_full"]
	if s.Packets+lost != c.sent || s.Durable.Packets != s.Packets {
		t.Errorf("%d sent, %d received, %d lost, %d durable", c.sent, s.Packets, lost, s.Durable.Packets)
	}
	files, _ := filepath.Glob(dir + "/ill-*.pcapng")
	got := captures.Packets(t, files...)
	if uint64(len(got)) != s.Packets {
		t.Errorf("%d packets in %d files, and %d were received", len(got), len(files), s.Packets)
	}
	last := uint64(0)
	for i, p := range inTurn(got) {
		n, ok := testenv.Sequence(p)
		if !ok || !testenv.Intact(p) || i > 0 && n <= last {
			t.Fatalf("packet %d has number %d after %d", i, n, last)
		}
		last = n
	}
	captures.Readable(t, files[0], files[len(files)-1])
}

// TestStopWhileFull: a flow that is stopped while its disk stays full waits until its drain timeout. Its
// error then says how much it could not write, and its files keep what it could.
func TestStopWhileFull(t *testing.T) {
	small := testenv.Ext4(t, 24<<20)
	c := newClinic(t, "", "file: "+small+"/ill, flush: 20ms, durable: 50ms, segment: {size: 64MiB}, prepare: none")
	c.ill.drainTimeout = time.Second
	c.start(t)
	c.capture(t, 1000)
	await(t, c.ill, "1000 durable packets", func(s status.Flow) bool { return s.Durable.Packets == 1000 })
	fill(t, small)
	for i := 0; i < 20 && c.ill.Status().State == status.Running; i++ {
		c.send(t, 500)
	}
	c.becomes(t, status.Waiting, small, "no space left")
	err := c.ill.Stop()
	if err == nil {
		t.Fatal("it stopped as if all were written")
	}
	testenv.MessageNames(t, err.Error(), []string{"stop flow ill", small, "did not take everything within 1s", "received", "written", "durable", "no space left"})
	s := c.ill.Status()
	if s.State != status.Failed || s.Packets <= s.Written.Packets || s.Durable.Packets > s.Written.Packets {
		t.Errorf("%s: %d received, %d written, %d durable", s.State, s.Packets, s.Written.Packets, s.Durable.Packets)
	}
	files, _ := filepath.Glob(small + "/ill-*.pcapng")
	got := captures.Packets(t, files...)
	if uint64(len(got)) < s.Written.Packets {
		t.Errorf("the files have %d packets, %d are written", len(got), s.Written.Packets)
	}
	captures.Readable(t, files...)
	free(t, c.B.Namespace, c.B.Ifname)
}
