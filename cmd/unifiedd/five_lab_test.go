package main

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/demo"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

//lab:program selftests/unified-flow-test

// The cards that receive packets. The first one also has the Soft-RoCE device.
var (
	capturedBy = labenv.Wire{Card: "igb1", Here: "10.79.1.2", There: "10.79.1.1"}
	fedBy      = labenv.Wire{Card: "virtio0", Here: "10.79.2.2", There: "10.79.2.1"}
)

// TestFiveFlows: one daemon runs all five flows on the hardware they are made for: cards (with zero
// copy if the kernel has it), kernel verbs, and NVMe disks through their nodes, one for each flow
// with a disk. Programs at the far ends verify every byte.
func TestFiveFlows(t *testing.T) {
	labenv.Guest(t)
	fiveFlows(t, "")
}

// TestFiveFlowsOnDAX: the region is on persistent memory, and all devices register that.
func TestFiveFlowsOnDAX(t *testing.T) {
	labenv.Guest(t)
	fiveFlows(t, labenv.DAX(t))
}

func fiveFlows(t *testing.T, on string) {
	const region, peers = 48 << 20, 24 << 20
	testenv.HugePages(t, region+peers)
	device := labenv.SoftRoCE(t, capturedBy.Card, capturedBy.Here+"/24")
	t.Cleanup(func() { labenv.RDMAAtRest(t, device) })
	disks := labenv.OddDisks(t)
	for _, disk := range []string{labenv.Disk, disks.Plain.Disk} { // what another test has left there would be read back
		if out, err := exec.Command("blkdiscard", "-f", disk).CombinedOutput(); err != nil {
			t.Fatalf("discard %s: %v\n%s", disk, err, out)
		}
	}
	capture, wal, blocks := labenv.DiskPassthrough, disks.Plain.Node, disks.Blocks.Node
	if labenv.Kernel(t) == labenv.Linux61 { // there, commands to the node take CAP_SYS_ADMIN, which the daemon lacks
		capture, wal, blocks = labenv.Disk, disks.Plain.Disk, disks.Blocks.Disk
	}
	senders := labenv.Opposite(t, capturedBy, fedBy)
	var said sink
	s, err := demo.Five(t.Context(), demo.Options{
		Out: &said, Time: map[bool]time.Duration{false: 20 * time.Second, true: time.Second}[testing.Short()],
		FlowTest: labenv.Program(t, "unified-flow-test"),
	}, demo.Place{
		Files: t.TempDir(), Senders: "/run/netns/" + senders.Name, Unifiedd: testenv.Tool(t, "unifiedd"),
		Region: region, RegionDevice: on, PeerRegion: peers, Ring: 512,
		Captured: capturedBy.Card, CapturedAt: capturedBy.Here + ":5000", Fed: fedBy.Card, FedAt: fedBy.Here + ":5000",
		Device: device, PeerDevice: device, Host: capturedBy.Here, PeerHost: capturedBy.Here,
		Capture: demo.DeviceDisk(capture, labenv.Disk), WAL: demo.DeviceDisk(wal, disks.Plain.Disk),
		Blocks:     demo.DeviceDisk(blocks, disks.Blocks.Disk),
		PacketRate: 100, MessageRate: 100, BlockRate: 50, BlockBytes: 2 << 20, IdleTimeout: "10s",
	})
	t.Logf("%s", said)
	if err != nil {
		t.Fatal(err)
	}
	if s.Region.Device != on {
		t.Errorf("the region is on %q, not %q", s.Region.Device, on)
	}
	if len(s.Flows) != 5 {
		t.Errorf("%d flows", len(s.Flows))
	}
	for _, f := range s.Flows {
		t.Run(f.Name, func(t *testing.T) { copiesNothing(t, &f) })
	}
}

// copiesNothing checks that neither the daemon nor the kernel copies a byte of a flow. The
// exception is a card whose driver has no zero copy.
func copiesNothing(t *testing.T, f *status.Flow) {
	if f.Bytes == 0 {
		t.Error("nothing went through")
	}
	for reason, n := range f.CopiedBytes {
		if n != 0 {
			t.Errorf("copied %d bytes: %s", n, reason)
		}
	}
	card := strings.HasPrefix(f.Kind, "network-")
	zero := card && labenv.ZeroCopy(t, f.From)
	if card && f.ZeroCopy != zero {
		t.Errorf("zero copy: %v, because %s", f.ZeroCopy, f.WhyNot)
	}
	for reason, n := range f.KernelBytes {
		if want := map[bool]uint64{true: f.Bytes}[card && !zero && reason == "xdp"]; n != want {
			t.Errorf("the kernel copied %d bytes, not %d: %s", n, want, reason)
		}
	}
}
