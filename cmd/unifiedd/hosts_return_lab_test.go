//go:build verbs && cgo

package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// keepAlive is the keep-alive timeout of a host.
const keepAlive = 2 * time.Second

// waitLimit fits the kernel's initiator, which tries once a second and takes seconds for each try.
const waitLimit = 12 * time.Second

// TestHostsReturn: while the kernel's initiator writes, the test kills the daemon and then cuts the
// wire to the host, UNIFIEDD_KILLS times each. The initiator reconnects by itself. Its writers only
// see a pause, and read what was acknowledged. Nothing of the killed daemon is left.
func TestHostsReturn(t *testing.T) {
	labenv.Guest(t)
	begin := time.Now()
	kills, seed := setting.Number(t, "UNIFIEDD_KILLS", 1), setting.Seed(t)
	t.Logf("UNIFIEDD_KILLS=%d", kills)
	wire := labenv.Wire{Card: "virtio0", Here: "10.79.0.1", There: "10.79.0.2"}
	testenv.HugePages(t, 66<<20)
	r := &returning{T: t, wire: wire, random: rand.New(rand.NewPCG(seed, 0)), dir: t.TempDir()}
	r.device = labenv.SoftRoCE(t, wire.Card, wire.Here+"/24")
	initiator := labenv.SoftRoCE(t, "virtio1", wire.There+"/24") // on the fellow card
	t.Cleanup(func() {
		labenv.RDMAAtRest(t, r.device)
		labenv.RDMAAtRest(t, initiator, "cq") // the initiator keeps completion queues for later use
	})
	wire.Around(t)
	r.pages = r.freePages()
	r.launch(labenv.Disk)
	r.idle = r.observe()
	disk := r.connect()
	beside := r.beside(disk)
	r.writers = startWriters(t, disk)
	t.Cleanup(r.disconnect) // runs before the writers' cleanup, which could otherwise wait forever
	r.writers.goOn(t)
	r.busy = r.observe()
	if r.idle.queuePairs != 0 || r.busy.queuePairs != queues {
		t.Errorf("%d queue pairs before the host came, %d with it", r.idle.queuePairs, r.busy.queuePairs)
	}
	t.Logf("the host writes after %v", time.Since(begin).Round(time.Millisecond))
	for i := range kills {
		r.killed(i)
		r.vanished(i)
	}
	beside()
	r.writers.end(t)
	t.Logf("the end begins after %v", time.Since(begin).Round(time.Millisecond))
	r.disconnect()
	r.left("the host to be gone")
	r.daemon.Terminate(t)
	r.nothingLeft()
	r.onDisk()
}

// queues is the number of the host's queues: the admin queue, and two for I/O.
const queues = 3

// returning is a daemon that is killed and started again, and a host that reconnects.
type returning struct {
	*testing.T
	wire    labenv.Wire
	device  string // RDMA device of the daemon
	random  *rand.Rand
	dir     string
	daemon  *daemon.Daemon
	pages   int64 // huge pages that were free at the start
	writers *writers

	connected bool // the initiator is connected, or tries to connect

	idle, busy held // without a host, and with one
}

// held is the daemon's use of resources at one moment.
type held struct {
	queuePairs int
	resources  map[string]int   // of the device, counted by the kernel
	owners     map[string]int64 // of frames
}

// launch starts a daemon on a disk and waits until it serves.
func (r *returning) launch(disk string) {
	r.Helper()
	r.daemon = launchHosts(r.T, r.dir, fmt.Sprintf(`
region: {size: 64MiB, extent: 512KiB, extents: 24}
flows:
  - name: volume
    from: {device: %s}
    to: {rdma: %s, listen: "%s:4420", subsystem: %s, allow_any_host: true, clients: 8, window: 64}
`, disk, r.device, r.wire.Here, servedNQN))
}

// status returns the daemon's status. The daemon must have its flow.
func (r *returning) status() (s status.Daemon, err error) {
	s, err = r.daemon.Status()
	if err == nil && (len(s.Flows) != 1 || len(s.RDMA) != 1) {
		err = fmt.Errorf("%d flows on %d devices", len(s.Flows), len(s.RDMA))
	}
	return s, err
}

func (r *returning) until(what string, is func(*status.Daemon) bool) {
	r.Helper()
	testenv.Wait(r, waitLimit, what, func() bool {
		s, err := r.status()
		return err == nil && is(&s)
	})
}

func (r *returning) observe() held {
	r.Helper()
	s, err := r.status()
	testenv.Must(r, err)
	var sum int64
	for _, n := range s.Region.Owners {
		sum += n
	}
	if sum != int64(s.Region.Frames) {
		r.Errorf("owners have %d frames of %d: %v", sum, s.Region.Frames, s.Region.Owners)
	}
	return held{s.RDMA[0].QueuePairs, labenv.RDMAResources(r, r.device), s.Region.Owners}
}

// connect makes the initiator connect and returns its disk. From then on the initiator reconnects
// by itself.
func (r *returning) connect() string {
	r.Helper()
	tool(r.T, "modprobe", "nvme_rdma")
	tool(r.T, "nvme", "connect", "-t", "rdma", "-a", r.wire.Here, "-s", "4420", "-n", servedNQN, "--hostid", hostID, "--hostnqn", hostNQN,
		"--nr-io-queues", strconv.Itoa(queues-1), "--keep-alive-tmo", strconv.Itoa(int(keepAlive/time.Second)), "--reconnect-delay", "1", "--ctrl-loss-tmo", "600")
	r.connected = true
	r.Cleanup(func() {
		r.disconnect()
		if r.Failed() {
			out, _ := exec.Command("bash", "-c", "rdma resource show; rdma resource show qp; rdma resource show cm_id; dmesg | tail -n 60").CombinedOutput()
			r.Logf("the kernel says:\n%s", out)
		}
	})
	return hostDisk(r.T, servedNQN)
}

// disconnect makes the initiator disconnect. That also ends I/O that waits for a path.
func (r *returning) disconnect() {
	r.Helper()
	if r.connected {
		r.connected = false
		tool(r.T, "nvme", "disconnect", "-n", servedNQN)
	}
}

// beside runs fio beside the writers in the long form, until end is called.
func (r *returning) beside(disk string) (end func()) {
	if testing.Short() {
		return func() {}
	}
	return labenv.Verifying(r, "--name=beside", "--filename="+disk, "--offset=128m", "--size=2m", "--bs=16k", "--iodepth=2", "--randseed=9")
}

// moment waits for a random time while the writers continue.
func (r *returning) moment() {
	r.Helper()
	r.writers.goOn(r.T)
	time.Sleep(time.Duration(r.random.IntN(700)) * time.Millisecond)
}

// killed kills the daemon and starts it again, on the disk's node and on the block device in turn.
func (r *returning) killed(i uint64) {
	r.Helper()
	r.moment()
	begin := time.Now()
	r.daemon.Kill()
	r.nothingLeft()
	gone := time.Since(begin)
	disk := labenv.Disk
	if i%2 == 0 && labenv.Kernel(r) != labenv.Linux61 { // there, commands to the node take CAP_SYS_ADMIN, which the daemon lacks
		disk = labenv.DiskPassthrough
	}
	r.launch(disk)
	served := time.Since(begin)
	r.back()
	r.Logf("kill %d: nothing is left after %v, the next one serves after %v, the host is back after %v", i, gone.Round(time.Millisecond), served.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
}

// vanished cuts the wire to the host. If the host was just disconnecting by itself, the daemon
// cannot detect the cut. Then vanished cuts again.
func (r *returning) vanished(i uint64) {
	r.Helper()
	for range 3 {
		if r.cut(i) {
			return
		}
		r.Logf("cut %d came when the host was leaving by itself", i)
	}
	r.Error("the host was leaving by itself at each cut")
}

// cut cuts the wire until the daemon has freed everything that it held for the host. It reports
// whether the daemon detected the cut.
func (r *returning) cut(i uint64) bool {
	r.Helper()
	r.moment()
	before, err := r.status()
	testenv.Must(r, err)
	begin := time.Now()
	r.wire.Cut(r)
	after := r.left("the silence to be noticed")
	gone := time.Since(begin)
	ended, expired := after.Ended-before.Flows[0].Hosts.Ended, after.Expired-before.Flows[0].Hosts.Expired
	r.wire.Mend(r)
	r.back()
	r.Logf("cut %d: gone after %v, by %d hosts that fell silent and %d queues that ended; back after %v", i, gone.Round(time.Millisecond), expired, ended, time.Since(begin).Round(time.Millisecond))
	if ended+expired == 0 && gone >= keepAlive { // a host that was disconnecting would have been gone sooner
		r.Errorf("cut %d: no queue has ended, and no host fallen silent", i)
	}
	return ended+expired > 0
}

// back waits until the host is connected again, its disk has what was acknowledged, and the daemon
// uses the same resources for it as before.
func (r *returning) back() {
	r.Helper()
	r.writers.goOn(r.T)
	r.until("the host to have its queues", func(s *status.Daemon) bool {
		h := s.Flows[0].Hosts
		return h.Hosts == 1 && h.Queues == queues && s.RDMA[0].QueuePairs == queues
	})
	r.writers.verify(r.T, nil)
	r.resources("with the host", r.busy)
}

// left waits until the daemon has no host, and uses the same resources as without one.
func (r *returning) left(what string) (h status.Hosts) {
	r.Helper()
	r.until(what, func(s *status.Daemon) bool {
		h = *s.Flows[0].Hosts
		return h.Hosts == 0 && h.Queues == 0 && s.RDMA[0].QueuePairs == r.idle.queuePairs
	})
	r.resources("without a host", r.idle)
	now := held{}
	defer func() {
		if r.Failed() {
			r.Logf("owners are %v, and were %v", now.owners, r.idle.owners)
		}
	}()
	testenv.Wait(r, waitLimit, "every frame to be where it was", func() bool { now = r.observe(); return maps.Equal(now.owners, r.idle.owners) })
	return h
}

// resources waits until the daemon's device has as many resources in use as in had.
func (r *returning) resources(when string, had held) {
	r.Helper()
	var now map[string]int
	defer func() {
		if r.Failed() {
			r.Logf("%s: %v in use, %v before", when, now, had.resources)
		}
	}()
	testenv.Wait(r, waitLimit, "the kernel's account of the device "+when, func() bool {
		now = labenv.RDMAResources(r, r.device)
		return maps.Equal(now, had.resources)
	})
}

// nothingLeft checks that a killed daemon leaves no RDMA resources, no huge pages, and no programs
// on interfaces.
func (r *returning) nothingLeft() {
	r.Helper()
	labenv.RDMAAtRest(r, r.device)
	testenv.Wait(r, waitLimit, "the huge pages to be free", func() bool { return r.freePages() == r.pages })
	links, err := netlink.LinkList()
	testenv.Must(r, err)
	for _, l := range links {
		if x := l.Attrs().Xdp; x != nil && x.Attached {
			r.Errorf("program %d is on %s", x.ProgId, l.Attrs().Name)
		}
	}
}

func (r *returning) freePages() int64 {
	r.Helper()
	b, err := os.ReadFile("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
	testenv.Must(r, err)
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	testenv.Must(r, err)
	return n
}

// onDisk checks that the disk itself has what was acknowledged.
func (r *returning) onDisk() {
	r.Helper()
	f, err := os.OpenFile(labenv.Disk, os.O_RDONLY|unix.O_DIRECT, 0)
	testenv.Must(r, err)
	defer f.Close()
	r.writers.verify(r.T, f)
}
