package status

import (
	"strings"
	"testing"
	"time"
)

// TestProblems: what is wrong with a flow, the worst first, and what to do. Errors, paths and addresses are in the details
// only.
func TestProblems(t *testing.T) {
	now := time.Unix(1700000000, 0)
	peers := &Sends{Peers: []Peer{{Name: "here", Address: "192.0.2.1:1", State: "connected", Error: "an earlier one"}, {Name: "desk", Address: "192.0.2.2:1", State: "connecting", Error: "/secret", Dropped: map[string]uint64{"oldest": 1234}}}}
	for _, c := range []struct {
		flow Flow
		want []string
	}{
		{Flow{State: Running, Kind: "null-null", Dropped: map[string]uint64{"filter_dropped": 7, "lost_ring_full": 0}}, nil},
		{Flow{State: Stopped}, []string{"info: flow f is stopped: unifiedd start f"}},
		{Flow{State: Done}, []string{"info: flow f is done"}},
		{Flow{State: Waiting, Cause: DiskFull, DiskErrors: map[string]uint64{"ENOSPC": 7}, Floor: &FreeSpace{Bytes: 1, Free: 7 << 20, Size: 1 << 30}, Since: time.Unix(0, 0)}, []string{"error: flow f waits since 1970-01-01 00:00 UTC: its disk is full: 7 MiB of 1 GiB are free, and it needs more: make room on the disk, keep fewer segments, or lower to.keep_free"}},
		{Flow{State: Running, Floor: &FreeSpace{Bytes: 1}}, []string{"error: flow f has no room on its disk above to.keep_free: " + RemedyFull}},
		{Flow{State: Waiting, Cause: DiskSilent, Since: now}, []string{"error: flow f waits since 22:13:20 UTC: its disk does not answer: see the kernel's log, and smartctl or nvme smart-log"}},
		{Flow{State: Waiting, Cause: InterfaceDown, Kind: "network-null", From: "eth1", ZeroCopy: true}, []string{"error: flow f waits: interface eth1 is down: ip link set eth1 up"}},
		{Flow{State: Failed, Cause: InterfaceGone, Kind: "network-null", From: "eth7"}, []string{"error: flow f has failed: interface eth7 is not there: bring it back, and unifiedd start f"}},
		{Flow{State: Failed, Cause: InterfaceGone, Kind: "null-rdma", NextStart: now}, []string{"error: flow f has failed: its interface is not there: bring it back, and the flow then starts again by itself"}},
		{Flow{State: Waiting, Cause: PeerAway, Sends: peers, LostAt: now}, []string{"error: flow f waits: peer desk is not connected: see whether it runs, the network between, and the certificates of both", "error: flow f has lost 1,234 for peer desk: oldest: the peer is slower than the flow, or away: see its policy"}},
		{Flow{State: Running, Sends: peers, LostAt: now}, []string{"error: flow f has lost 1,234 for peer desk: oldest: the peer is slower than the flow, or away: see its policy", "warning: flow f has peer desk, which is connecting [192.0.2.2:1: /secret]"}},
		{Flow{State: Failed, Error: "/secret"}, []string{"error: flow f has failed: mend what unifiedd status says, and unifiedd start f [/secret]"}},
		{Flow{State: Waiting, Error: "/secret"}, []string{"error: flow f waits [/secret]"}},
		{Flow{State: Running, Kind: "network-storage", Ring: 2048, Far: []string{"card"}, DiskErrors: map[string]uint64{"EIO": 1}, Dropped: map[string]uint64{"lost_damaged": 3, "lost_no_frames": 273092}, LostAt: now.Add(-Recently)},
			[]string{"error: flow f has lost 273,092 (lost_no_frames): the worker came too late to the ring: use a larger from.ring than 2048, a shorter sleep, or a CPU for the worker alone", "error: flow f has lost 3 (lost_damaged): the card refused them as broken: see the cable, and the other end", "error: flow f got EIO from its disk once: see the kernel's log, and smartctl or nvme smart-log", "info: flow f has no zero copy: the kernel copies each packet: unifiedd status says why the driver did not grant it", "info: flow f has parts on another NUMA node than the region: set region.node and workers[].cpu to the node of the card"}},
		{Flow{State: Running, Stalls: 1, Dropped: map[string]uint64{"lost_no_frames": 1000}, LostAt: now.Add(-Recently - 1)}, []string{"info: flow f has lost 1,000 (lost_no_frames): " + Reasons["lost_no_frames"].String()}},
		{Flow{State: Running, Engine: "packet", Joined: []Joined{{Group: "239.1.2.3", Error: "no device"}}, Left: []uint32{1}, NotSteered: "not supported"},
			[]string{"warning: flow f is not a member of one of its multicast groups [239.1.2.3: no device]", "warning: flow f does not bind queues [1]: their packets stay with the kernel: bind all queues, or steer the packets to those of the flow (from.steer)", "warning: flow f does not steer its packets [not supported]"}},
	} {
		c.flow.Name = "f"
		var got []string
		for _, one := range c.flow.Problems(now) {
			text := string(one.Severity) + ": " + one.String()
			if one.Detail != "" {
				text += " [" + one.Detail + "]"
			}
			got = append(got, text)
		}
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s, %s:\n%s\nwant\n%s", c.flow.State, c.flow.Cause, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// TestDaemonProblems: what is wrong with the daemon, and with what its programs share.
func TestDaemonProblems(t *testing.T) {
	long := time.Unix(0, 0).UTC()
	for _, c := range []struct {
		daemon Daemon
		want   []string
	}{
		{Daemon{TLS: &TLS{}, Cluster: &Cluster{Up: true}, Trace: &Trace{}, Region: Region{Ordinary: true}, Flows: []Flow{{Engine: "packet"}}, Config: Config{Last: &Reload{Outcome: Applied}}}, nil},
		{Daemon{Region: Region{Ordinary: true}, Flows: []Flow{{Engine: "packet"}, {}}}, []string{"warning: the region is on ordinary pages: every device is slower: unifiedd doctor prints the command that reserves huge pages"}},
		{Daemon{Config: Config{Last: &Reload{Outcome: RolledBack, Error: "line 1\nline 2"}}, Trace: &Trace{Error: "no room"}}, []string{"warning: the last reload was rolled back: line 1: unifiedd check says what is wrong with the file", "info: not all flows are recorded for unifiedd trace: no room"}},
		{Daemon{Clock: Clock{Steps: 2, Step: -3 * time.Second}, TLS: &TLS{Expired: true, Expires: long}}, []string{"error: the daemon's certificate has expired at 1970-01-01T00:00:00Z: replace the files of tls, and unifiedd reload", "warning: the system's clock was set 2 times, last by -3s: have chrony adjust its rate instead"}},
		{Daemon{Cluster: &Cluster{Since: long, Error: "refused"}}, []string{"error: the registry of daemons does not answer since 1970-01-01T00:00:00Z: flows go on, and peers that move are not followed: refused: unifiedd doctor asks each endpoint"}},
		{Daemon{Cluster: &Cluster{Up: true, Name: "a"}}, []string{"error: the daemon is not registered: unifiedd cluster status says why"}},
		{Daemon{Cluster: &Cluster{Up: true, Unregistered: map[string]string{"log": "port 0"}, UnregisteredStates: map[string]string{"book": "local"}}}, []string{"info: others cannot find flow log: port 0", "info: others cannot find state book: local"}},
		{Daemon{Workers: []Worker{{Name: "w", Away: Stall{Count: 1, Longest: 30 * time.Millisecond}}}}, []string{"info: worker w did not poll for 20 ms or longer once, for at most 30ms: give it a CPU of its own (workers[].cpu), and keep others off it"}},
		{Daemon{Programs: &Programs{Channels: []Channel{{Name: "c", Readers: []ChannelReader{{Program: "ok"}, {Program: "r", Lost: 1000}}}}}, States: []SharedState{{Name: "s", Refused: map[string]uint64{"full": 2, "bad_key": 0}}}},
			[]string{"warning: reader r of channel c has lost 1,000 messages: make it faster, raise slots, or give it the policy wait", "warning: state s has refused 2 updates: full: docs/reference/reasons.md has each reason"}},
	} {
		var got []string
		for _, one := range c.daemon.Problems() {
			one.Text = one.Full()
			got = append(got, string(one.Severity)+": "+one.String())
		}
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
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
