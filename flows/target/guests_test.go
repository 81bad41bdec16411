//go:build lab && verbs && cgo

package target

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// The wire between two guests: docs/lab.md.
const (
	wireCard   = "link0"
	wireServer = "10.78.0.2"
	wirePort   = ":18601" // where the guests tell each other when to begin and to end
)

// TestBetweenGuests is run in both guests of a pair by make test-nvme-guests, and in no other way: the second has the target, and the first the
// kernel's initiator.
func TestBetweenGuests(t *testing.T) {
	name := labenv.SoftRoCE(t, wireCard)
	t.Cleanup(func() { labenv.RDMAAtRest(t, name, "cq") })
	if os.Getenv("UNIFIEDD_LAB_HOST") == "2" {
		servesGuest(newRigOn(t, name, wireServer))
	} else {
		asksGuest(&rig{T: t, listen: wireServer + ":4420"})
	}
}

// servesGuest serves until the other guest has had all.
func servesGuest(r *rig) {
	v := r.serve(Config{Seats: 8, Queues: 4, Depth: 128, Capsule: 4096, Subsystems: []Subsystem{{NQN: nqn, Namespaces: []Namespace{{ID: 1, Disk: r.disk(200 << 20), UUID: [16]byte{1: 8, 15: 1}}}}}})
	l, err := net.Listen("tcp", wireServer+wirePort)
	r.must(err)
	defer l.Close()
	conn, err := l.Accept()
	r.must(err)
	_, err = io.ReadAll(conn) // until it has had all
	r.must(err)
	testenv.Wait(r, patience, "the host to be gone", func() bool { return v.server.Stats().Queues == 0 })
	st := v.server.Stats()
	r.Logf("%+v", st)
	if st.Failed+st.Ended+st.Expired != 0 || st.Read.Bytes == 0 || st.Written.Bytes <= st.InCapsule || st.InCapsule == 0 || st.Flushes == 0 || st.Discards == 0 {
		r.Error("not all that there is was done")
	}
}

// asksGuest is the host.
func asksGuest(r *rig) {
	var conn net.Conn
	testenv.Wait(r, 2*time.Minute, "the target in the other guest", func() (is bool) {
		var err error
		conn, err = net.DialTimeout("tcp", wireServer+wirePort, 5*time.Second)
		return err == nil
	})
	defer conn.Close()
	i := r.connect(",nr_io_queues=2")
	r.discover()
	device := i.path(1)
	for _, depth := range []int{1, 16, 64} {
		r.verified(device, depth, "--rw=randrw", "--rwmixread=30", "--fsync=16")
	}
	r.run("blkdiscard", "-o", "1MiB", "-l", "16MiB", device)
	r.run("mkfs.ext4", "-q", "-F", device)
	dir := r.TempDir()
	r.run("mount", device, dir)
	mounted := true
	r.Cleanup(func() {
		if mounted {
			_ = exec.Command("umount", dir).Run()
		}
	})
	sums := r.tree(dir)
	r.run("umount", dir)
	i.disconnect()
	i = r.connect("")
	r.run("mount", i.path(1), dir)
	r.verify(dir, sums)
	r.run("umount", dir)
	mounted = false
	i.disconnect()
}

// verified has fio write blocks of 512 bytes to 1 MiB from two processes, and verify what they read again.
func (r *rig) verified(device string, depth int, more ...string) {
	r.Helper()
	begin := time.Now()
	r.run(testenv.Tool(r, "fio"), append([]string{"--name=blocks", "--filename=" + device, "--size=8m", "--numjobs=2", "--offset_increment=64m", "--bsrange=512-1m", "--bs_unaligned=0",
		"--blockalign=512", "--direct=1", "--ioengine=libaio", "--verify=crc32c", "--verify_fatal=1", "--end_fsync=1", "--group_reporting", fmt.Sprintf("--iodepth=%d", depth)}, more...)...)
	r.Logf("fio %v at depth %d took %v", more, depth, time.Since(begin).Round(time.Second))
}
