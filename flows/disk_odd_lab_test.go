package flows

import (
	"errors"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme"
)

// usual are the settings of flows to the odd disks.
const usual = "segment: {size: 8MiB}, flush: 20ms, durable: 100ms"

// wholeDisk is a patient that writes to the disk with blocks of 4096 bytes, or to its node.
func wholeDisk(t *testing.T, c *clinic, odd *labenv.Odd, node bool) *patient {
	t.Helper()
	p := &patient{clinic: c, device: odd.Blocks.Disk, raw: odd.Blocks.Disk}
	if node {
		p.device = odd.Blocks.Node
	}
	p.prescribed(t, usual)
	return p
}

// unplugged removes a disk from its bus while a flow writes to it, and attaches it again. The disk has blocks
// of 4096 bytes. The flow uses layout packed, since slots are smaller than a block.
func unplugged(t *testing.T, c *clinic, node bool) {
	odd := labenv.OddDisks(t)
	p := wholeDisk(t, c, odd, node)
	p.prescribed(t, "layout: slot, "+usual)
	c.refused(t, p.device, "512 bytes", "4096", "layout: packed")
	p.prescribed(t, usual)
	p.falls(t, odd.Unplug, "the disk is gone", "attach it again")
	if s := c.ill.Status(); s.Durable.Offset%4096 != 0 || s.KernelBytes["disk"] != 0 {
		t.Errorf("durable up to offset %d, and the kernel copied %v", s.Durable.Offset, s.KernelBytes)
	}
	c.refused(t, p.device, "attach the disk")
	p.recovers(t, func(t testing.TB) {
		odd.Plug(t)
		back := wholeDisk(t.(*testing.T), c, odd, node)
		p.device, p.raw = back.device, back.raw
	})
}

func diskRemoved(t *testing.T, c *clinic) { unplugged(t, c, false) }

func nodeRemoved(t *testing.T, c *clinic) { unplugged(t, c, true) }

// fileSystemRemoved removes the disk below a mounted file system.
func fileSystemRemoved(t *testing.T, c *clinic) {
	odd := labenv.OddDisks(t)
	p := &patient{clinic: c, device: odd.Blocks.Disk, dir: labenv.Ext4(t, odd.Blocks.Disk)}
	p.prescribed(t, usual)
	p.falls(t, odd.Unplug, "the disk is gone", "mount it")
	p.recovers(t, func(t testing.TB) {
		odd.Plug(t)
		p.device = odd.Blocks.Disk
	})
}

// refused checks that ill cannot start and that its error says why.
func (c *clinic) refused(t *testing.T, says ...string) error {
	t.Helper()
	err := c.try(t)
	if err == nil {
		t.Fatalf("%s was started", pipeline.Destination(c.ill.config.To))
	}
	testenv.MessageNames(t, err.Error(), append(says, "start flow ill"))
	if s := c.ill.Status(); s.State != status.Failed || s.Error != err.Error() {
		t.Errorf("%s: %s", s.State, s.Error)
	}
	free(t, c.B.Namespace, c.B.Ifname)
	return err
}

// refusals starts the flow on disks that it cannot write to: some are too small for a ring, and one serves
// reads and fails each write.
func refusals(t *testing.T, c *clinic) {
	odd := labenv.OddDisks(t)
	for _, device := range []string{odd.Small.Disk, odd.Small.Node}[:shorter(1, 2)] {
		c.prescribe(t, "", "device: "+device+", segment: {size: 2MiB}")
		c.refused(t, device, "too small", "3145728 bytes", "3 segments of 2097152 bytes need 8388608", "larger device")
	}
	for _, device := range []string{odd.Failing.Disk, odd.Failing.Node}[:shorter(1, 2)] {
		c.prescribe(t, "", "device: "+device+", "+usual)
		c.refused(t, device, "the disk fails", "the kernel's log")
	}
}

// diskReadOnly sets the disk read-only, before the flow starts and while it runs.
func diskReadOnly(t *testing.T, c *clinic) {
	odd := labenv.OddDisks(t)
	set := func(how string) {
		t.Helper()
		if out, err := exec.Command(testenv.Tool(t, "blockdev"), how, odd.Blocks.Disk).CombinedOutput(); err != nil {
			t.Fatalf("blockdev %s: %v: %s", how, err, out)
		}
	}
	set("--setro")
	for _, device := range []string{odd.Blocks.Disk, odd.Blocks.Node}[:shorter(1, 2)] {
		c.prescribe(t, "", "device: "+device+", "+usual)
		if err := c.refused(t, device, "read-only", "blockdev --setrw "+odd.Blocks.Disk); !errors.Is(err, nvme.ErrDeviceReadOnly) {
			t.Error(err)
		}
	}
	set("--setrw")
	p := wholeDisk(t, c, odd, false)
	p.falls(t, func(testing.TB) { set("--setro") }, "read-only by now", "blockdev --setrw "+odd.Blocks.Disk)
	set("--setrw")
	if !testing.Short() {
		p.recovers(t, func(testing.TB) {})
	}
}

// readOnlyFiles starts the flow on a file system that is mounted read-only.
func readOnlyFiles(t *testing.T, p *patient) {
	t.Helper()
	remount := func(flags uintptr) {
		t.Helper()
		if err := unix.Mount("", p.dir, "", unix.MS_REMOUNT|flags, ""); err != nil {
			t.Fatalf("mount %s again: %v", p.dir, err)
		}
	}
	remount(unix.MS_RDONLY)
	p.refused(t, p.dir, "read-only file system", "mount it for writing")
	remount(0)
}
