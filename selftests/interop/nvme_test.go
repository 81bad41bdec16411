package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// The subsystem that the daemon serves, and the identity of the guest.
const (
	subsystem = "nqn.2026-01.com.example:volume"
	hostNQN   = "nqn.2014-08.org.nvmexpress:uuid:4b1dbb4e-6f4b-4b0c-9a0c-2f1c8b6f0a01"
	hostID    = "4b1dbb4e-6f4b-4b0c-9a0c-2f1c8b6f0a01"
)

// volume is a daemon in the namespace that serves a file over RoCE in software.
type volume struct {
	*bench
	daemon *daemon.Daemon
	file   string
}

// nvme makes the guest's kernel use a file of the daemon as a disk. The guest discovers it,
// connects, writes in every way, disconnects, connects again and reads. The daemon copies each
// written byte once and no read byte.
func (b *bench) nvme(t *testing.T) {
	v := b.newVolume(t, "")
	v.run(t, "modprobe nvme_rdma")
	v.discovered(t)
	v.written(t)
	v.found(t)
	v.judge(t)
	v.daemon.Terminate(t)
}

// newVolume starts the daemon. more has additional keys of the flow's sink.
func (b *bench) newVolume(t *testing.T, more string) *volume {
	t.Helper()
	testenv.HugePages(t, 66<<20)
	v := &volume{bench: b, file: filepath.Join(b.dir, "volume")}
	program := testenv.Program(t, "cmd/unifiedd")
	testenv.Must(t, os.WriteFile(v.file, nil, 0o600))
	testenv.Must(t, os.Truncate(v.file, 256<<20))
	v.daemon = daemon.Launch(t, program, &b.tap.End, b.dir, fmt.Sprintf(`
region: {size: 64MiB, extent: 512KiB, extents: 24}
flows:
  - name: volume
    from: {file: %s}
    to: {rdma: "roce:%s", listen: "%v:4420", subsystem: %s, clients: 8, window: 64, hosts: [%s]%s}
`, v.file, b.tap.Ifname, b.tap.IP, subsystem, hostNQN, more))
	v.daemon.Running(t)
	return v
}

// cli is an nvme-cli command with the target's address and the host's identity.
func (v *volume) cli(command string) string {
	return fmt.Sprintf("nvme %s -t rdma -a %v -s 4420 --hostnqn %s --hostid %s", command, v.tap.IP, hostNQN, hostID)
}

// connect is shell text that connects and waits for the namespace. Its device is then in $disk.
func (v *volume) connect(options string) string {
	return fmt.Sprintf(`set -e
		%s -n %s %s
		disk=
		for try in $(seq 200); do
			for block in $(ls /sys/block | grep '^nvme[0-9]*n'); do
				[ "$(cat /sys/block/$block/device/subsysnqn 2>/dev/null)" != %[2]s ] || disk=/dev/$block
			done
			[ ! -b "$disk" ] || break
			sleep 0.1
		done
		[ -b "$disk" ]
		`, v.cli("connect"), subsystem, options)
}

const disconnect = "nvme disconnect -n " + subsystem

func (v *volume) discovered(t *testing.T) {
	t.Helper()
	said := v.run(t, v.cli("discover"))
	for _, want := range []string{subsystem, fmt.Sprintf("traddr:  %v", v.tap.IP), "trsvcid: 4420", "rdma_cms:    rdma-cm"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in what nvme discover says:\n%s", want, said)
		}
	}
	// The target refuses a host that is not on its list.
	other := strings.ReplaceAll(v.cli("connect")+" -n "+subsystem, "4b1dbb4e", "00000000")
	v.run(t, "! "+other)
	if s, err := v.daemon.Status(); err != nil || s.Flows[0].Hosts.Commands["refused"] != 1 {
		t.Errorf("another host: %v, %+v", err, s.Flows)
	}
}

// fio is a job that writes to the device and verifies it.
func (v *volume) fio(name, options string) string {
	return "fio --name=" + name + " --filename=$disk --direct=1 --ioengine=libaio --verify=crc32c --verify_fatal=1 --end_fsync=1 --randseed=7 " + options + "\n"
}

// written writes and verifies blocks. Then it writes files of many sizes and keeps their checksums.
func (v *volume) written(t *testing.T) {
	t.Helper()
	text := v.connect("-i 2")
	if v.long {
		for _, size := range []string{"512", "4k", "64k", "1m"} {
			for _, depth := range []int{1, 16, 64} {
				text += v.fio(fmt.Sprintf("blocks-%s-%d", size, depth), fmt.Sprintf("--size=16m --io_size=%s --rw=randwrite --bs=%s --iodepth=%d", map[string]string{"512": "256k", "4k": "1m", "64k": "8m", "1m": "16m"}[size], size, depth))
			}
		}
		text += v.fio("mixed", "--size=16m --io_size=8m --rw=randrw --rwmixread=50 --bsrange=512-256k --blockalign=512 --iodepth=16 --fsync=16 --verify_backlog=64")
		text += v.fio("queues", "--numjobs=4 --offset_increment=32m --size=4m --rw=randwrite --bs=16k --iodepth=16 --group_reporting")
	} else {
		text += v.fio("blocks", "--size=2m --rw=randwrite --bsrange=512-256k --blockalign=512 --iodepth=16")
	}
	text += `
		mkdir -p /tmp/volume
		mkfs.ext4 -q -F $disk
		mount $disk /tmp/volume
		for size in 0 1 511 4096 65537 3145745; do
			mkdir -p /tmp/volume/$size
			for copy in 1 2; do head -c $size /dev/urandom > /tmp/volume/$size/$copy; done
		done
		(cd /tmp/volume && find . -type f | sort | xargs sha256sum) > /tmp/volume.sums
		fstrim /tmp/volume
		umount /tmp/volume
		` + disconnect
	v.longRun(t, text)
}

// found connects again and verifies the files that written left.
func (v *volume) found(t *testing.T) {
	t.Helper()
	said := v.longRun(t, v.connect("")+`
		mount $disk /tmp/volume
		(cd /tmp/volume && sha256sum -c --quiet /tmp/volume.sums && find . -type f | wc -l)
		umount /tmp/volume
		`+disconnect)
	if !strings.Contains(said, "12\n") {
		t.Errorf("not 12 files are there:\n%s", said)
	}
}

// longRun is run for commands that take an emulated machine long.
func (v *volume) longRun(t *testing.T, text string) string {
	t.Helper()
	out := new(daemon.Log)
	r, err := v.try(text, matrixLimit/4, out)
	judge(t, "nvme", r, err, out)
	if t.Failed() {
		s, _ := v.daemon.Status()
		t.Fatalf("status %+v\n%s", s.Flows, v.daemon.Log)
	}
	return out.String()
}

// judge compares the daemon's counters with what the guest did.
func (v *volume) judge(t *testing.T) {
	t.Helper()
	s := v.daemon.Until(t, "the guest to be gone", func(s *status.Daemon) bool { return s.Flows[0].Hosts.Queues == 0 })
	f := &s.Flows[0]
	h, device := f.Hosts, s.RDMA[0]
	t.Logf("commands %v, bytes %v, copied %v; %s placed %d, sent copied %v", h.Commands, h.Bytes, f.CopiedBytes, device.Name, device.Placed, device.SentCopied)
	if h.Bytes["read"] == 0 || h.Bytes["in_capsules"] == 0 || h.Bytes["written"] <= h.Bytes["in_capsules"] || h.Commands["flush"] == 0 || h.Commands["dataset_management"] == 0 || h.Commands["failed"] != 0 {
		t.Error("not all that there is was done")
	}
	// In-capsule data also comes with Connect (1024 bytes) and with Dataset Management.
	if h.Bytes["in_capsules"] > h.Bytes["written"] || f.KernelBytes["disk"] > 0 {
		t.Errorf("bytes %v, and the kernel has copied %v", h.Bytes, f.KernelBytes)
	}
	if more := f.CopiedBytes["placed"] - h.Bytes["written"]; f.CopiedBytes["placed"] < h.Bytes["written"] || more > 1000*4096 || more%16 != 0 {
		t.Errorf("of %d bytes written %d were copied", h.Bytes["written"], f.CopiedBytes["placed"])
	}
	if n := device.SentCopied["whole"] + device.SentCopied["parts"]; n > 0 {
		t.Errorf("%d bytes were copied to be sent: %v", n, device.SentCopied)
	}
}
