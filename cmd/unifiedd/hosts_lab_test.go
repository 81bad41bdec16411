//go:build verbs && cgo

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

const (
	servedNQN = "nqn.2026-01.com.example:verbs"
	besideNQN = "nqn.2026-01.com.example:beside" // served at the same address
	hostID    = "4b1dbb4e-6f4b-4b0c-9a0c-2f1c8b6f0a01"
	hostNQN   = "nqn.2014-08.org.nvmexpress:uuid:" + hostID
)

// TestHostsOnVerbs: a daemon with one flow is an NVMe target on a kernel RDMA device. The kernel's
// initiator discovers it, connects, writes, reads and disconnects. The status shows that.
func TestHostsOnVerbs(t *testing.T) {
	labenv.Guest(t)
	const address = "10.79.0.1"
	testenv.HugePages(t, 66<<20)
	device := labenv.SoftRoCE(t, "virtio0", address+"/24")
	t.Cleanup(func() { labenv.RDMAAtRest(t, device, "cq") }) // the initiator keeps completion queues for later use
	first, second, beside := labenv.Map(t, 64<<20).Path, labenv.Map(t, 8<<20).Path, labenv.Map(t, 4<<20).Path
	text := func(more string) string {
		return fmt.Sprintf(`
region: {size: 64MiB, extent: 512KiB, extents: 24}
flows:
  - name: volume
    from: {device: %s}
    to: {rdma: %s, listen: "%s:4420", subsystem: %s, allow_any_host: true, clients: 8, window: 64, subsystems: [{subsystem: %s, allow_any_host: true, namespaces: [{id: 1, device: %s}]}]%s}
`, first, device, address, servedNQN, besideNQN, beside, more)
	}
	d := daemon.Launch(t, testenv.Tool(t, "unifiedd"), daemon.Here{}, t.TempDir(), text(""))
	until := func(what string, ok func(*status.Flow) bool) {
		t.Helper()
		d.Until(t, what, func(s *status.Daemon) bool { return len(s.Flows) == 1 && ok(&s.Flows[0]) })
	}
	until("the flow to run", func(f *status.Flow) bool { return f.State == status.Running })

	to := []string{"-t", "rdma", "-a", address, "-s", "4420", "--hostid", hostID, "--hostnqn", hostNQN}
	tool(t, "modprobe", "nvme_rdma")
	if out := tool(t, "nvme", append([]string{"discover"}, to...)...); !strings.Contains(out, servedNQN) || !strings.Contains(out, besideNQN) {
		t.Errorf("%s, or another, is not in what nvme discover says:\n%s", servedNQN, out)
	}
	tool(t, "nvme", append([]string{"connect", "-n", servedNQN}, to...)...)
	disk := hostDisk(t, servedNQN)
	tool(t, "fio", "--name=blocks", "--filename="+disk, "--size=1m", "--rw=randwrite", "--bsrange=512-128k", "--blockalign=512", "--direct=1", "--iodepth=8", "--ioengine=libaio",
		"--verify=crc32c", "--verify_fatal=1", "--end_fsync=1", "--randseed=7")
	until("what was written and read to be known to have arrived", func(f *status.Flow) bool {
		return f.Hosts.Hosts == 1 && f.Hosts.Bytes["written"] == 1<<20 && f.Hosts.Bytes["read"] >= 1<<20 && f.CopiedBytes["placed"] == 0
	})
	var out, errs sink
	if code := run([]string{"status", "-o", "wide", "--socket", d.Socket}, &out, &errs); code != 0 || !strings.Contains(line(string(out), "serves"), servedNQN+", 67108864 bytes, to 1 hosts") {
		t.Errorf("status ends with %d: %s\n%s", code, errs, out)
	}
	if got := line(string(out), "namespace"); !strings.Contains(got, "1: ") || !strings.Contains(got, ", 67108864 bytes; ") || !strings.Contains(got, "written 1048576") {
		t.Errorf("status of the namespace: %q", got)
	}
	change := func(there bool) {
		more := ""
		if there {
			more = ", namespaces: [{id: 2, device: " + second + "}]"
		}
		d.Configure(t, text(more))
		var said, errs sink
		if code := run([]string{"reload", "--socket", d.Socket}, &said, &errs); code != 0 || !strings.Contains(line(string(said), "subsystems"), "volume") {
			t.Errorf("reload ends with %d: %s\n%s", code, errs, said)
		}
	}
	if !testing.Short() { // the short form tests this with a simulated host on RoCE in software
		comeAndGo(t, disk, change)
	}
	tool(t, "nvme", append([]string{"connect", "-n", besideNQN}, to...)...)
	if size := tool(t, "blockdev", "--getsize64", hostDisk(t, besideNQN)); size != "4194304\n" {
		t.Errorf("the disk of %s has %s bytes", besideNQN, size)
	}
	if out := tool(t, "nvme", "disconnect", "-n", besideNQN); !strings.Contains(out, "disconnected 1 ") {
		t.Error(out)
	}
	tool(t, "nvme", "disconnect", "-n", servedNQN)
	until("the host to be gone", func(f *status.Flow) bool {
		return f.Hosts.Hosts == 0 && f.Hosts.Queues == 0 && f.Hosts.Ended == 0 && f.Hosts.Commands["failed"] == 0
	})
	d.Terminate(t)
}

// comeAndGo adds and removes the second namespace by reloads. The kernel gets an event each time
// and follows. The host writes to the first namespace during that time and verifies it.
func comeAndGo(t *testing.T, disk string, second func(there bool)) {
	t.Helper()
	other := strings.TrimSuffix(disk, "n1") + "n2"
	busy := exec.Command(testenv.Tool(t, "fio"), "--name=busy", "--filename="+disk, "--size=1m", "--loops=1000", "--rw=randwrite", "--bs=16k", "--direct=1", "--iodepth=2", "--ioengine=libaio",
		"--verify=crc32c", "--verify_fatal=1", "--randseed=8", "--do_verify=1")
	var said bytes.Buffer
	busy.Stdout, busy.Stderr = &said, &said
	testenv.Must(t, busy.Start())
	for round := range 2 {
		second(true)
		testenv.Wait(t, testenv.Within(30*time.Second), "the kernel to have the second namespace", func() bool { _, err := os.Stat(other); return err == nil })
		if round == 0 {
			tool(t, "dd", "if=/dev/urandom", "of="+other, "bs=64k", "count=4", "oflag=direct")
		}
		second(false)
		testenv.Wait(t, testenv.Within(30*time.Second), "the kernel to have it no more", func() bool { _, err := os.Stat(other); return os.IsNotExist(err) })
	}
	testenv.Check(t, busy.Process.Signal(syscall.SIGINT))
	err := busy.Wait()
	if status, _ := busy.ProcessState.Sys().(syscall.WaitStatus); err != nil && status.Signal() != syscall.SIGINT && status.ExitStatus() != 128 { // after SIGINT fio ends by the signal or with status 128
		t.Errorf("fio: %v\n%s", err, &said)
	}
}

// tool runs a program that must succeed.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, name), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// hostDisk waits for the kernel's disk of the namespace.
func hostDisk(t *testing.T, nqn string) (disk string) {
	t.Helper()
	testenv.Wait(t, testenv.Within(30*time.Second), "the namespace", func() bool {
		out, err := exec.Command("/bin/bash", "-c", `for block in $(ls /sys/block | grep '^nvme[0-9]*n'); do
			[ "$(cat /sys/block/$block/device/subsysnqn 2>/dev/null)" != `+nqn+` ] || [ ! -b /dev/$block ] || echo /dev/$block; done`).Output()
		disk = strings.TrimSpace(string(out))
		return err == nil && disk != ""
	})
	return disk
}
