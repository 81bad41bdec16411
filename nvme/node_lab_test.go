package nvme

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/umem/porttest"
)

// labDisk and labNode are the lab's NVMe disk and its node.
func labDisk() string { return cmp.Or(os.Getenv("UNIFIEDD_LAB_NVME_DISK"), labenv.Disk) }

func labNode() string { return cmp.Or(os.Getenv("UNIFIEDD_LAB_NVME_NODE"), labenv.DiskPassthrough) }

func diskTarget(_ testing.TB, size uint64) TargetConfig {
	return TargetConfig{Path: labDisk(), Size: size, Force: true}
}

func nodeTarget(_ testing.TB, size uint64) TargetConfig {
	return TargetConfig{Path: labNode(), Size: size, Force: true}
}

// TestPortOnDisk: a queue on an NVMe disk, as block device and as node, keeps the contract of umem.Port.
func TestPortOnDisk(t *testing.T) {
	labenv.Guest(t)
	for _, c := range []struct {
		name   string
		target func(testing.TB, uint64) TargetConfig
		config Config
	}{
		{"block device", diskTarget, Config{}},
		{"node", nodeTarget, Config{Passthrough: true}},
		{"node, older kernel", nodeTarget, Config{Passthrough: true}.Without(FeatureGatherFixed | FeatureNoMmap | FeatureNoSQArray)},
		{"node, a device's memory", nodeTarget, Config{Passthrough: true}.Without(FeatureDeviceMemory)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "node" {
				testenv.Long(t, "the case node covers most of it")
			}
			porttest.Run(t, func(t testing.TB) *porttest.Link { return openLink(t, c.target, c.config) })
		})
	}
}

// TestNode: durable writes, reads, zeroings and discards through the node work. Another program
// sees the result through the block device.
func TestNode(t *testing.T) {
	labenv.Guest(t)
	r := newRig(t, umem.Config{}, Config{Passthrough: true})
	to, i := r.open(nodeTarget(t, 1<<20))
	t.Logf("limits %+v, alignment %v, granted %+v", to.Limits(), to.Alignment(), r.queue.Granted())
	want := r.written(i, 8, r.queue.SendDurable)
	if got := onDisk(t, labDisk(), 0, 8*4096); !bytes.Equal(got, want) {
		t.Fatal("the block device does not have what was written")
	}
	if f := r.flush(i, 3); f.Err != nil {
		t.Error(f.Err)
	}
	testenv.Check(t, r.span(r.queue.Zero, i, 8192, 12288))
	clear(want[8192:][:12288])
	if got := onDisk(t, labDisk(), 0, 8*4096); !bytes.Equal(got, want) {
		t.Error("the block device does not have the zeros")
	}
	testenv.Check(t, r.span(r.queue.Discard, i, 0, 4096))
	if s := r.queue.Stats(); s.Copied != 0 || (s.Pinned != 0) != (labenv.Kernel(t) == labenv.Linux61) || s.Writes != 8 || len(s.Errors) != 0 {
		t.Errorf("%+v", s)
	}
}

// TestDAX: with a region on a device-DAX device, reads and writes of every kind of target work. Linux 6.1 does not
// register that memory, and its pages are pinned for each operation.
func TestDAX(t *testing.T) {
	labenv.Guest(t)
	registered := labenv.Kernel(t) != labenv.Linux61
	for name, target := range map[string]func(testing.TB, uint64) TargetConfig{"file": fileTarget, "block device": diskTarget, "node": nodeTarget} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, umem.Config{Device: labenv.DAX(t)}, Config{Passthrough: name == "node"})
			_, i := r.open(target(t, 1<<20))
			want := r.written(i, 8, r.queue.Send)
			fs := r.take(8)
			for k := range fs {
				fs[k] = r.at(fs[k], i, uint64(k)*4096)
				clear(r.region.Bytes(fs[k]))
			}
			fs = r.read(fs)
			for _, f := range fs {
				if at := r.region.Side(f).Block; !bytes.Equal(r.region.Bytes(f), want[at:at+4096]) {
					t.Errorf("block at %d was read wrong", at)
				}
			}
			r.hands.Give(fs)
			if s, g := r.queue.Stats(), r.queue.Granted(); g.Region != registered || (s.Pinned == 0) != registered || s.Copied != 0 || len(s.Errors) != 0 {
				t.Errorf("%v; %+v", g, s)
			}
		})
	}
}

// TestNodeLargerThanACommand: an extent larger than the disk's largest transfer moves in several commands.
func TestNodeLargerThanACommand(t *testing.T) {
	labenv.Guest(t)
	r := newRig(t, umem.Config{Size: 16 << 20, ExtentSize: 4 << 20, Extents: 2}, Config{Passthrough: true})
	to, i := r.open(nodeTarget(t, 8<<20))
	fs := make([]umem.Frame, 1)
	if r.hands.TakeExtents(fs) != 1 {
		t.Fatal("no extent")
	}
	fs[0].Len = 4 << 20
	r.fill(fs[0], 1)
	r.at(fs[0], i, 1<<20)
	want := bytes.Clone(r.region.Bytes(fs[0]))
	fs = r.write(fs)
	clear(r.region.Bytes(fs[0]))
	fs = r.read(fs)
	if !bytes.Equal(r.region.Bytes(fs[0]), want) || !bytes.Equal(onDisk(t, labDisk(), 1<<20, 4<<20), want) {
		t.Error("other bytes came back")
	}
	if s, most := r.queue.Stats(), to.Limits().Transfer; s.Short == 0 && most < 4<<20 {
		t.Errorf("a command takes %d bytes, and %+v", most, s)
	}
	r.hands.Give(fs)
}

// TestNodeEnd: reads and writes across the end of the disk fail correctly.
func TestNodeEnd(t *testing.T) {
	labenv.Guest(t)
	r := newRig(t, umem.Config{}, Config{Passthrough: true})
	to, i := r.open(nodeTarget(t, 1<<20))
	fs := r.take(2)
	for _, at := range []uint64{to.Size(), to.Size() - 2048} {
		r.at(fs[0], i, at)
		fs = append(fs[1:], r.moveAny(fs[:1], r.queue.Send, r.queue.Reap)...)
		if err := fs[1].Err(); !errors.Is(err, unix.ENOSPC) {
			t.Errorf("a write at %d of %d: %v", at, to.Size(), err)
		}
		r.at(fs[0], i, at)
		fs = append(fs[1:], r.moveAny(fs[:1], r.queue.Supply, r.queue.Recv)...)
		if err := fs[1].Err(); !errors.Is(err, unix.ENODATA) {
			t.Errorf("a read at %d of %d: %v", at, to.Size(), err)
		}
	}
	r.hands.Give(fs)
}

// TestNodeRefused: a node whose disk must not be written is refused, and so is a node on a queue
// without Passthrough.
func TestNodeRefused(t *testing.T) {
	labenv.Guest(t)
	fd, err := unix.Open(labDisk(), unix.O_RDWR|unix.O_EXCL|unix.O_CLOEXEC, 0)
	testenv.Must(t, err)
	_, err = OpenTarget(TargetConfig{Path: labNode()})
	if !errors.Is(err, ErrDeviceInUse) {
		t.Errorf("the node of a claimed disk: %v", err)
	}
	testenv.Must(t, unix.Close(fd))
	r := newRig(t, umem.Config{}, Config{})
	to, err := OpenTarget(nodeTarget(t, 0))
	testenv.Must(t, err)
	if _, err := r.queue.Add(to); err == nil || !strings.Contains(err.Error(), "Passthrough") {
		t.Errorf("added to a queue without room for commands: %v", err)
	}
	if fd, err := unix.Open(labDisk(), unix.O_RDWR|unix.O_EXCL|unix.O_CLOEXEC, 0); !errors.Is(err, unix.EBUSY) {
		t.Errorf("the disk of an open node can be claimed: %d, %v", fd, err)
	}
	r.check(to.Close())
	if _, err := OpenTarget(TargetConfig{Path: labNode(), Size: 1 << 60}); !errors.Is(err, ErrDeviceTooSmall) {
		t.Error(err)
	}
}

// TestSignalsOnDisk is TestSignals on a disk, where Linux 6.1 gives up some of the flushes.
func TestSignalsOnDisk(t *testing.T) {
	labenv.Guest(t)
	testenv.Long(t, "Linux 7 gives up no flushes, and TestSignals runs on other targets")
	flushInRain(t, diskTarget(t, 1<<20))
}
