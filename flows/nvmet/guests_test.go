//go:build verbs && cgo

package nvmet

import (
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// The wire between two guests: docs/background/testing.md.
const (
	wireCard   = "link0"
	wireServer = "10.78.0.2"
	wirePort   = ":18601" // on which the guests signal begin and end; quietPort in the other test
	quietPort  = ":18602"
)

// TestBetweenGuests: the kernel's initiator in one guest works with a target in another guest. Only
// make test-long SUITE=nvme-guests runs TestBetweenGuests and TestGuestFallsSilent, in both guests of a pair:
// the second has the target, and the first the initiator.
func TestBetweenGuests(t *testing.T) {
	labenv.Guest(t)
	betweenGuests(t, servesGuest, asksGuest)
}

// TestGuestFallsSilent: while a host's packets are lost, its keep-alive time ends its controller.
// When the link works again, the host reconnects.
func TestGuestFallsSilent(t *testing.T) {
	labenv.Guest(t)
	betweenGuests(t, expiresGuest, fallsSilent)
}

func betweenGuests(t *testing.T, serve, ask func(*rig)) {
	name := labenv.SoftRoCE(t, wireCard)
	t.Cleanup(func() { labenv.RDMAAtRest(t, name, "cq") })
	if os.Getenv("UNIFIEDD_LAB_HOST") == "2" {
		serve(newRigOn(t, name, wireServer))
	} else {
		ask(&rig{T: t, listen: wireServer + ":4420"})
	}
}

// servesGuest serves until the host in the other guest has finished.
func servesGuest(r *rig) {
	v := r.serve(Config{Sessions: 8, Queues: 4, Depth: 128, Capsule: 4096, Subsystems: []Subsystem{{NQN: nqn, AnyHost: true, Namespaces: []Namespace{{ID: 1, Disk: r.disk(200 << 20), UUID: [16]byte{1: 8, 15: 1}}}}}})
	r.meets(wirePort)
	testenv.Wait(r, waitLimit, "the host to be gone", func() bool { return v.server.Stats().Queues == 0 })
	st := v.server.Stats()
	r.Logf("%+v", st)
	if st.Failed+st.Ended+st.Expired != 0 || st.Read.Bytes == 0 || st.Written.Bytes <= st.InCapsule || st.InCapsule == 0 || st.Flushes == 0 || st.Discards == 0 {
		r.Error("not all that there is was done")
	}
}

// meets waits until the host has finished.
func (r *rig) meets(port string) {
	r.Helper()
	l, err := net.Listen("tcp", wireServer+port)
	r.must(err)
	defer l.Close()
	conn, err := l.Accept()
	r.must(err)
	defer conn.Close()
	_, err = io.ReadAll(conn)
	r.must(err)
}

// meet connects to the other guest. The host closes the connection when it has finished.
func (r *rig) meet(port string) (conn net.Conn) {
	r.Helper()
	testenv.Wait(r, 2*time.Minute, "the target in the other guest", func() bool {
		var err error
		conn, err = net.DialTimeout("tcp", wireServer+port, 5*time.Second)
		return err == nil
	})
	return conn
}

// expiresGuest serves until the host in the other guest has been silent and has reconnected.
func expiresGuest(r *rig) {
	v := r.serve(Config{Sessions: 8, Queues: 2, Depth: 64, Capsule: 4096, Subsystems: []Subsystem{{NQN: nqn, AnyHost: true, Namespaces: []Namespace{{ID: 1, Disk: r.disk(64 << 20), UUID: [16]byte{1: 6, 15: 1}}}}}})
	r.meets(quietPort)
	testenv.Wait(r, waitLimit, "the host to be gone", func() bool { return v.server.Stats().Queues == 0 })
	v.rest()
	if st := v.server.Stats(); st.Expired != 1 || st.Ended != 1 || st.Failed != 0 {
		r.Errorf("%d hosts fell silent, %d queues were ended for what their hosts did, %d commands failed", st.Expired, st.Ended, st.Failed)
	}
}

// fallsSilent is the host. Its packets are lost for longer than its keep-alive time and the
// target's grace. Its link stays up: if Soft-RoCE's link goes down, the initiator's recovery never
// ends in Linux 7.3, even when the link is up again.
func fallsSilent(r *rig) {
	const keepAlive = 5 * time.Second
	defer r.meet(quietPort).Close()
	i := r.connect(fmt.Sprintf(",keep_alive_tmo=%d,reconnect_delay=1,ctrl_loss_tmo=300,nr_io_queues=1", int(keepAlive.Seconds())))
	b := r.keepBusy(i.path(1))
	b.goesOn(r)
	time.Sleep(2 * keepAlive) // a busy host sends no keep-alive and must not expire
	b.goesOn(r)
	b.pause.Lock()
	r.run("udevadm", "settle")
	time.Sleep(2 * keepAlive) // an idle host sends keep-alives
	if state := i.state(); state != "live" {
		r.Errorf("the controller is %s", state)
	}
	r.run("tc", "qdisc", "replace", "dev", wireCard, "root", "netem", "loss", "100%")
	time.Sleep(2*keepAlive + grace)
	r.run("tc", "qdisc", "del", "dev", wireCard, "root")
	b.pause.Unlock()
	b.goesOn(r)
	if state := i.state(); state != "live" {
		r.Errorf("the controller is %s", state)
	}
	i.disconnect()
	if err := b.await(r); err == nil {
		r.Error("writing goes on without a controller")
	}
}

// asksGuest is the host.
func asksGuest(r *rig) {
	defer r.meet(wirePort).Close()
	i := r.connect(",nr_io_queues=2")
	r.discover()
	device := i.path(1)
	for _, depth := range []int{1, 16, 64} {
		r.verified(device, depth, "--rw=randrw", "--rwmixread=30", "--fsync=16")
	}
	r.run("blkdiscard", "-o", "1MiB", "-l", "16MiB", device)
	r.keepsFiles(i)
}

// verified makes fio write blocks of 512 bytes to 1 MiB from two processes, and verify them.
func (r *rig) verified(device string, depth int, more ...string) {
	r.Helper()
	begin := time.Now()
	r.run(testenv.Tool(r, "fio"), append([]string{"--name=blocks", "--filename=" + device, "--size=8m", "--numjobs=2", "--offset_increment=64m", "--bsrange=512-1m", "--bs_unaligned=0",
		"--blockalign=512", "--direct=1", "--ioengine=libaio", "--verify=crc32c", "--verify_fatal=1", "--end_fsync=1", "--group_reporting", fmt.Sprintf("--iodepth=%d", depth)}, more...)...)
	r.Logf("fio %v at depth %d took %v", more, depth, time.Since(begin).Round(time.Second))
}
