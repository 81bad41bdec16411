package finding

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestOf: what is wrong with a flow, and what to do, without a path, address or error.
func TestOf(t *testing.T) {
	peers := &status.Sends{Peers: []status.Peer{{Name: "here", Address: "192.0.2.1:1", State: "connected"}, {Name: "desk", Address: "192.0.2.2:1", State: "connecting", Error: "/secret", Dropped: map[string]uint64{"drop_oldest": 1234}}}}
	for _, c := range []struct {
		flow   status.Flow
		recent bool
		want   []string
	}{
		{status.Flow{State: status.Running, Kind: "null-null"}, true, nil},
		{status.Flow{State: status.Stopped}, true, []string{"info: flow f is stopped: unifiedd start f"}},
		{status.Flow{State: status.Done}, true, []string{"info: flow f is done"}},
		{status.Flow{State: status.Waiting, Cause: status.DiskFull, DiskErrors: map[string]uint64{"ENOSPC": 7}, Floor: &status.FreeSpace{Bytes: 1, Free: 7 << 20, Size: 1 << 30}, Since: time.Unix(0, 0)}, true, []string{"error: flow f waits since 1970-01-01 00:00 UTC: its disk is full, 7 MiB of 1 GiB are free: make room on the disk, keep fewer segments, or lower to.keep_free"}},
		{status.Flow{State: status.Running, Floor: &status.FreeSpace{Bytes: 1}}, true, []string{"error: flow f has no room on its disk above to.keep_free: " + RemedyFull}},
		{status.Flow{State: status.Waiting, Cause: status.DiskSilent}, true, []string{"error: flow f waits: its disk does not answer: see the kernel's log, and smartctl or nvme smart-log"}},
		{status.Flow{State: status.Waiting, Cause: status.InterfaceDown, Kind: "network-null", From: "eth1", ZeroCopy: true}, true, []string{"error: flow f waits: interface eth1 is down: ip link set eth1 up"}},
		{status.Flow{State: status.Failed, Cause: status.InterfaceGone, Kind: "network-null", From: "eth7"}, true, []string{"error: flow f has failed: interface eth7 is not there: bring it back, and unifiedd start f"}},
		{status.Flow{State: status.Failed, Cause: status.InterfaceGone, Kind: "null-rdma", NextStart: time.Unix(1, 0)}, true, []string{"error: flow f has failed: its interface is not there: bring it back: the flow then starts again by itself"}},
		{status.Flow{State: status.Waiting, Cause: status.PeerAway, Sends: peers}, true, []string{"error: flow f waits: peer desk is not connected: see whether it runs, the network between, and the certificates of both", "error: flow f has lost 1,234 for peer desk: drop_oldest: the peer is slower than the flow, or away: see its policy"}},
		{status.Flow{State: status.Failed, Error: "/secret"}, true, []string{"error: flow f has failed: unifiedd status says why"}},
		{status.Flow{State: status.Waiting, Error: "/secret"}, true, []string{"error: flow f waits: for its interface, disk or peer: unifiedd status says why"}},
		{status.Flow{State: status.Running, Kind: "network-storage", Ring: 2048, Far: []string{"card"}, DiskErrors: map[string]uint64{"EIO": 1}, Dropped: map[string]uint64{"filter_dropped": 5, "lost_no_frames": 273092}}, true,
			[]string{"error: flow f has lost 273,092: the worker came too late to the rings, while there were frames: use a larger from.ring than 2048, a shorter sleep, or a CPU for the worker alone", "error: flow f got EIO from its disk once: see the kernel's log, and smartctl or nvme smart-log", "info: flow f has no zero copy: the kernel copies each packet: unifiedd status says why the driver did not grant it", "info: flow f has parts on another NUMA node than the region: set region.node and workers[].cpu to the node of the card"}},
		{status.Flow{State: status.Running, Stalls: 1, Dropped: map[string]uint64{"lost_no_frames": 1000, "odd": 1}}, false,
			[]string{"info: flow f has lost 1,000: the rings had no empty frame, as the flow waited for its disk or peers: use a faster disk or a larger region", "info: flow f has lost 1: odd: docs/reference/reasons.md has each reason"}},
	} {
		c.flow.Name = "f"
		var got []string
		for _, one := range Of(&c.flow, c.recent) {
			got = append(got, string(one.Severity)+": "+one.String())
		}
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s, %s:\n%s\nwant\n%s", c.flow.State, c.flow.Cause, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// TestReasons: docs/reference/reasons.md has each reason.
func TestReasons(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "reference", "reasons.md"))
	testenv.Must(t, err)
	for reason, w := range reasons {
		if !regexp.MustCompile("`" + reason + "`").Match(text) {
			t.Errorf("docs/reference/reasons.md does not have %s", reason)
		}
		if w.why == "" || w.remedy == "" {
			t.Errorf("%s has no cause or no remedy", reason)
		}
	}
}

// TestSince: the time of a day is enough for what is not old.
func TestSince(t *testing.T) {
	f := status.Flow{State: status.Failed, Since: time.Now()}
	if text := Of(&f, true)[0].Text; !regexp.MustCompile(`^has failed since \d\d:\d\d:\d\d UTC$`).MatchString(text) {
		t.Error(text)
	}
}

// TestBytes: three digits, and never an exponent.
func TestBytes(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 999: "999 B", 1000: "0.977 KiB", 7327744: "6.99 MiB", 1023 << 20: "0.999 GiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d is %s", n, got)
		}
	}
}

// TestGrouped: three digits in each group.
func TestGrouped(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 273092: "273,092", 1234567: "1,234,567"} {
		if got := Grouped(n); got != want {
			t.Errorf("%d is %s", n, got)
		}
	}
}
