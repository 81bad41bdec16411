package powercut

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// The wire between the target and the kernel's initiator, which works only in the first network namespace.
const (
	initiatorCard = "cut0"
	initiatorAt   = "10.79.2.2"
	targetCard    = "cut1"
	targetAt      = "10.79.2.1"
	subsystem     = "nqn.2026-01.com.example:cut"
	hostID        = "4b1dbb4e-6f4b-4b0c-9a0c-2f1c8b6f0a01"
)

// serve makes the kernel write to a target by NVMe over Fabrics. It marks what the target
// acknowledged as durable.
func (d *driver) serve(t *testing.T, f flow) {
	far := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true}).B
	d.wire(t, &far)
	from := "device: " + d.device(f)
	if !f.onDevice() {
		from = "file: " + d.sized(t, f)
	}
	run := launch(t, d.program, &far, "2MiB", fmt.Sprintf("  - {name: %s, from: {%s}, to: {rdma: \"roce:%s\", listen: \"%s:4420\", subsystem: %s, allow_any_host: true, clients: 4, window: 32}}\n",
		f.name(), from, targetCard, targetAt, subsystem))
	run.Running(t)
	host(t, "nvme", "connect", "-t", "rdma", "-a", targetAt, "-s", "4420", "-n", subsystem, "-i", "1", "--hostid", hostID, "--hostnqn", "nqn.2014-08.org.nvmexpress:uuid:"+hostID)
	blocks := d.write(t, f, namespaceDisk(t))
	host(t, "nvme", "disconnect", "-n", subsystem)
	s, err := run.Status()
	if err != nil || s.Flows[0].Hosts.Commands["flush"] == 0 || s.Flows[0].Hosts.Commands["failed"] > 0 {
		t.Errorf("%v, %+v", err, s.Flows)
	}
	run.Terminate(t)
	t.Logf("onto part %d: %d blocks; commands %v", f.part, blocks, s.Flows[0].Hosts.Commands)
}

// host runs a program in the first namespace.
func host(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// wire makes an interface in the first namespace, with its other end in the namespace of far, and a
// Soft-RoCE device on it.
func (d *driver) wire(t *testing.T, far *testenv.End) {
	t.Helper()
	_ = exec.Command("modprobe", "-q", "crc32_generic").Run() // only some kernels have it as a module
	for _, module := range []string{"ib_uverbs", "rdma_rxe", "nvme_rdma"} {
		host(t, "modprobe", module)
	}
	far.Run(t, "ip", "link", "add", targetCard, "mtu", "4200", "type", "veth", "peer", "name", initiatorCard, "mtu", "4200", "netns", "1")
	far.Run(t, "ip", "address", "add", targetAt+"/24", "dev", targetCard)
	far.Run(t, "ip", "link", "set", targetCard, "up")
	host(t, "ip", "address", "add", initiatorAt+"/24", "dev", initiatorCard)
	host(t, "ip", "link", "set", initiatorCard, "up")
	host(t, "rdma", "link", "add", "cutrxe", "type", "rxe", "netdev", initiatorCard)
	t.Cleanup(func() { _ = exec.Command("rdma", "link", "delete", "cutrxe").Run() })
	testenv.Wait(t, testenv.Within(20*time.Second), "the address to be one of the device's", func() bool {
		_, err := os.ReadFile("/sys/class/infiniband/cutrxe/ports/1/gid_attrs/types/1")
		return err == nil
	})
}

// sized makes the file of a target. The file is empty and has its final size.
func (d *driver) sized(t *testing.T, f flow) string {
	t.Helper()
	name := f.prefix(d.dir)
	file, err := os.Create(name)
	if err == nil {
		err = file.Truncate(mostBlocks * blockLen)
	}
	if err == nil {
		err = file.Sync()
	}
	testenv.Must(t, err)
	testenv.Must(t, file.Close())
	return name
}

// namespaceDisk waits for the kernel's disk of the NVMe namespace.
func namespaceDisk(t *testing.T) (disk string) {
	t.Helper()
	testenv.Wait(t, testenv.Within(20*time.Second), "the namespace", func() bool {
		all, _ := filepath.Glob("/sys/block/nvme*/device/subsysnqn")
		for _, file := range all {
			name := filepath.Base(filepath.Dir(filepath.Dir(file)))
			if text, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(text)) == subsystem && strings.Count(name, "c") == 0 {
				disk = "/dev/" + name
				_, err := os.Stat(disk)
				return err == nil
			}
		}
		return false
	})
	return disk
}

// The host writes the first 8 of each 16 blocks one by one, each durable on completion (FUA). A
// flush makes the other 8 durable together.
const (
	turn    = 16
	durably = 8
)

// write writes blocks for a while and returns how many.
func (d *driver) write(t *testing.T, f flow, disk string) (n uint64) {
	t.Helper()
	plain, err := os.OpenFile(disk, os.O_WRONLY|unix.O_DIRECT, 0)
	testenv.Must(t, err)
	defer plain.Close()
	sync, err := os.OpenFile(disk, os.O_WRONLY|unix.O_DIRECT|unix.O_DSYNC, 0)
	testenv.Must(t, err)
	defer sync.Close()
	b := aligned(t, blockLen)
	for end := time.Now().Add(d.span); n < mostBlocks && (n%turn != 0 || time.Now().Before(end)); n++ {
		copy(b, f.block(n))
		to, safe := plain, n%turn == turn-1
		if n%turn < durably {
			to, safe = sync, true
		}
		_, err := to.WriteAt(b, int64(n*blockLen))
		if err == nil && to == plain && safe {
			err = plain.Sync()
		}
		testenv.Mustf(t, err, "write block %d", n)
		if safe {
			d.mark(t, Marker{Flow: uint32(f.number), Packets: n + 1})
		}
	}
	return n
}
