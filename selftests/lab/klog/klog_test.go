package klog

import (
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/selftests/lab/wire"
)

func lines(level int, text ...string) (log []wire.LogLine) {
	for _, t := range text {
		log = append(log, wire.LogLine{Level: level, Text: t})
	}
	return log
}

// TestQuietLog: the usual messages of a healthy kernel are no complaints.
func TestQuietLog(t *testing.T) {
	log := lines(6,
		"igb 0000:01:00.0 igb0: igb: igb0 NIC Link is Up 1000 Mbps Full Duplex, Flow Control: RX/TX",
		"nvme0n1: p1", "EXT4-fs (vda): mounted filesystem r/w", "debug: warnings are off",
		"Spectre V1 : Mitigation: usercopy/swapgs barriers", "hugetlb: allocating 5 of page size 2.00 MiB failed",
	)
	log = append(log, lines(2, "EXT4-fs error (device dm-0): ext4_journal_check_start:83: comm flows.test: Detected aborted journal",
		"EXT4-fs (nvme0n1): shut down requested (2)")...)
	log = append(log, lines(4, "xdp.test (170): drop_caches: 3", "process 'x' launched '/dev/fd/3' with NULL argv")...)
	if got := Complaints(log); got != nil {
		t.Errorf("complaints in a healthy log: %q", got)
	}
}

func TestComplaints(t *testing.T) {
	for _, text := range []string{
		"WARNING: CPU: 1 PID: 170 at net/xdp/xsk.c:300 xsk_release+0x10/0x20",
		"BUG: kernel NULL pointer dereference, address: 0000000000000008",
		"Oops: 0002 [#1] PREEMPT SMP NOPTI",
		"kernel BUG at mm/hugetlb.c:1234!",
		"WARNING: possible circular locking dependency detected",
		"INFO: task xdp.test:170 blocked for more than 120 seconds.",
		"rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
		"watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [xdp.test:170]",
		"refcount_t: underflow; use-after-free.",
		"page_pool_release_retry() stalled pool shutdown: id 7, 3 inflight 60 sec",
	} {
		if got := Complaints(lines(4, "before", text, "after")); len(got) != 1 || !strings.HasPrefix(got[0], "<4> "+text) {
			t.Errorf("%q is no complaint, or not one: %q", text, got)
		}
		if !InConsole("[    1.0] before\n[    2.0] " + text + "\n") {
			t.Errorf("%q is not seen on a console", text)
		}
		if got, want := FromComplaint("[    1.0] before\n[    2.0] "+text+"\nRIP\n"), "[    2.0] "+text+"\nRIP\n"; got != want {
			t.Errorf("its report is %q", got)
		}
	}
	if got := Complaints(lines(2, "EXT4-fs error (device vda): ext4_lookup:1855: inode #12: comm x: deleted inode referenced: 13")); len(got) != 1 {
		t.Errorf("an error on the disk of temporary files is no complaint: %q", got)
	}
	if got := Complaints(lines(1, "something nobody has heard of")); len(got) != 1 {
		t.Errorf("a record of level 1 is no complaint: %q", got)
	}
}

// TestReportsEnd: a report includes its trace and no more, and two complaints give two reports.
func TestReportsEnd(t *testing.T) {
	log := lines(4, "WARNING: CPU: 0 PID: 1 at a.c:1", "Call Trace:", " f+0x1/0x2", "---[ end trace 0000000000000000 ]---", "quiet",
		"WARNING: CPU: 0 PID: 1 at b.c:1")
	got := Complaints(log)
	if len(got) != 2 || strings.Contains(got[0], "quiet") || !strings.Contains(got[0], "f+0x1") || !strings.Contains(got[1], "b.c") {
		t.Errorf("%q", got)
	}
	long := lines(4, append([]string{"WARNING: here"}, strings.Split(strings.Repeat("x ", 200), " ")...)...)
	if got := Complaints(long); len(got) != 1 || strings.Count(got[0], "\n") != context {
		t.Errorf("%q", got)
	}
}
