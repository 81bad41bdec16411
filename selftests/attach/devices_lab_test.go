package attach

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

//lab:program cmd/unifiedd
//lab:program selftests/unified-flow-test

// The card that receives packets. It also has the Soft-RoCE device.
var receives = labenv.Wire{Card: "igb1", Here: "10.79.1.2", There: "10.79.1.1"}

// guest is a daemon in the guest, whose region has slices on huge pages, with flows to and from them.
type guest struct {
	*testing.T
	dir, socket string
	d           *daemon.Daemon
}

// TestSlicesOnDevices: the memory of programs is part of the region, and each device takes it as it takes the
// frames: the card as UMEM (packets land in it, with zero copy if the kernel has it), the disk as io_uring buffers
// (blocks are read into it), and the RDMA device as memory region (messages land in it, and leave from it). No flow
// copies a byte, but the log, which always copies. Programs are other processes.
func TestSlicesOnDevices(t *testing.T) {
	labenv.Guest(t)
	testenv.HugePages(t, 72<<20)
	device := labenv.SoftRoCE(t, receives.Card, receives.Here+"/24")
	t.Cleanup(func() { labenv.RDMAAtRest(t, device) })
	senders := labenv.Opposite(t, receives)
	blocks := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(blocks) // never fails
	testenv.Must(t, os.WriteFile(labenv.Disk, blocks, 0))
	g := &guest{T: t, dir: testenv.DiskDir(t)}
	g.socket = filepath.Join(g.dir, "attach.sock")
	g.d = daemon.Launch(t, program, daemon.Here{}, g.dir, fmt.Sprintf(`
region: {size: 40MiB, extent: 1MiB}
workers: [{name: main}]
attach:
  socket: %[1]s/attach.sock
  programs:
    - {name: reader, user: root, in: 24MiB}
    - {name: writer, user: root, out: 4MiB}
flows:
  - {name: md, from: {interface: %[2]s, ring: 256, filter: udp dst port 5000}, to: {attach: reader, place: here, expose: true, policy: wait, queue: 256}}
  - {name: feed, from: {rdma: %[3]s, listen: "%[4]s:7471", message: 1KiB, window: 64, clients: 1}, to: {attach: reader, policy: wait, queue: 256}}
  - {name: image, from: {device: %[5]s}, to: {attach: reader, queue: 64}}
  - {name: orders, from: {attach: writer, message: 1KiB}, to: {file: %[1]s/orders, acknowledge: durable, segment: {size: 8MiB}}}
  - {name: hedges, from: {attach: writer, message: 1KiB, trusted: true}, to: {rdma: %[3]s, peers: [{name: desk, address: "%[4]s:7481"}]}}
`, g.dir, receives.Card, device, receives.Here, labenv.Disk))
	testenv.Wait(t, 10*time.Minute, "the daemon to listen", func() bool { // the guest is emulated
		select {
		case <-g.d.Exited:
			t.Fatalf("the daemon has ended: %v\n%s", g.d.Err, g.d.Log)
		default:
		}
		_, err := os.Stat(g.d.Socket)
		return err == nil
	})
	g.d.Until(t, "the flows to run", func(s *status.Daemon) bool { // one of them waits for its peer
		return !slices.ContainsFunc(s.Flows, func(f status.Flow) bool { return !f.State.Up() })
	})
	g.sealed()
	g.packets(senders)
	g.clients(device)
	g.blocks(blocks)
	g.log()
	g.peers(device)
	g.d.Terminate(t)
}

// flow returns the status of a flow.
func (g *guest) flow(name string) *status.Flow {
	g.Helper()
	s, err := g.d.Status()
	testenv.Must(g, err)
	i := slices.IndexFunc(s.Flows, func(f status.Flow) bool { return f.Name == name })
	if i < 0 {
		g.Fatalf("there is no flow %s", name)
	}
	return &s.Flows[i]
}

// take starts a program that takes messages of a flow, and waits until it has the flow open.
func (g *guest) take(flow string, n int, more ...string) *daemon.Client {
	g.Helper()
	args := append([]string{"take", "-socket", g.socket, "-as", "reader", "-flow", flow, "-count", fmt.Sprint(n)}, more...)
	c := daemon.StartClient(g.T, flowTest, daemon.Here{}, args...)
	g.d.Until(g.T, "the program to have flow "+flow+" open", func(s *status.Daemon) bool {
		return slices.ContainsFunc(s.Flows, func(f status.Flow) bool { return f.Name == flow && f.Gives != nil && f.Gives.Open })
	})
	return c
}

// packets: packets land in the program's memory.
func (g *guest) packets(senders *testenv.Namespace) {
	g.Helper()
	const n = 100
	c := g.take("md", n)
	senders.Run(g.T, flowTest, "send", "-to", receives.Here+":5000", "-size", "500", "-count", fmt.Sprint(n), "-rate", "100")
	c.Await(g.T, 5*time.Minute)
	f, zero := g.flow("md"), labenv.ZeroCopy(g.T, receives.Card)
	if f.ZeroCopy != zero || f.CopiedBytes["attach"] != 0 || f.Gives.Messages != n || f.KernelBytes["xdp"] != 0 && zero {
		g.Errorf("zero copy %v (%s), want %v; copied %v, by the kernel %v; %+v", f.ZeroCopy, f.WhyNot, zero, f.CopiedBytes, f.KernelBytes, *f.Gives)
	}
	g.Logf("%d packets landed in the program's memory; zero copy: %v", n, f.ZeroCopy)
}

// clients: messages of RDMA clients land in the program's memory.
func (g *guest) clients(device string) {
	g.Helper()
	const n = 100
	c := g.take("feed", n)
	client := daemon.StartClient(g.T, flowTest, daemon.Here{}, "append", "-device", device, "-ordinary", "-to", receives.Here+":7471", "-size", "512", "-count", fmt.Sprint(n))
	client.Await(g.T, 5*time.Minute)
	c.Await(g.T, 5*time.Minute)
	if f := g.flow("feed"); f.CopiedBytes["attach"] != 0 || f.Gives.Messages != n {
		g.Errorf("copied %v; %+v", f.CopiedBytes, *f.Gives)
	}
}

// blocks: the NVMe disk reads into the program's memory.
func (g *guest) blocks(want []byte) {
	g.Helper()
	k := attach(g.T, g.dir, "reader", 0)
	defer k.Close()
	r, err := k.Blocks("image", 0)
	testenv.Must(g, err)
	defer r.Close()
	ctx, cancel := context.WithTimeout(g.Context(), 10*time.Minute)
	defer cancel()
	got := make([]attached.Block, 16)
	for asked, answered := 0, 0; answered < len(want)/4096; {
		for asked < len(want)/4096 {
			if _, err := r.Request(uint64(asked)*4096, 4096); err != nil {
				break
			}
			asked++
		}
		n, err := r.Poll(got)
		testenv.Must(g, err)
		for _, b := range got[:n] {
			if b.Err != nil || !bytes.Equal(b.Data, want[b.Offset:b.Offset+4096]) {
				g.Fatalf("the block at %d differs: %v", b.Offset, b.Err)
			}
		}
		r.Release(got[:n])
		if answered += n; n == 0 {
			testenv.Must(g, r.Wait(ctx, time.Second))
		}
	}
	if f := g.flow("image"); f.CopiedBytes["attach"] != 0 {
		g.Errorf("copied %v", f.CopiedBytes)
	}
}

// log: messages of a program are durable, once.
func (g *guest) log() {
	g.Helper()
	const n, size = 100, 500
	c := daemon.StartClient(g.T, flowTest, daemon.Here{}, "submit", "-socket", g.socket, "-as", "writer", "-flow", "orders", "-size", fmt.Sprint(size), "-count", fmt.Sprint(n))
	c.Await(g.T, 5*time.Minute)
	f := g.flow("orders")
	if f.Durable.Packets != n || f.Log.Acknowledged != n || f.CopiedBytes["attach"] != 0 {
		g.Errorf("%d durable, %+v; copied %v", f.Durable.Packets, *f.Log, f.CopiedBytes)
	}
}

// peers: messages leave from memory that a program writes.
func (g *guest) peers(device string) {
	g.Helper()
	const n, size = 100, 500
	peer := daemon.StartClient(g.T, flowTest, daemon.Here{}, "receive", "-device", device, "-ordinary", "-listen", receives.Here+":7481", "-flow", "hedges", "-count", fmt.Sprint(n))
	c := daemon.StartClient(g.T, flowTest, daemon.Here{}, "submit", "-socket", g.socket, "-as", "writer", "-flow", "hedges", "-size", fmt.Sprint(size), "-count", fmt.Sprint(n))
	c.Await(g.T, 5*time.Minute)
	peer.Await(g.T, 5*time.Minute)
	if f := g.flow("hedges"); !strings.Contains(peer.Out.String(), fmt.Sprint(n)) || f.Sends.Peers[0].Acknowledged != n || f.CopiedBytes["attach"] != 0 {
		g.Errorf("%d acknowledged, copied %v; the peer says: %s", f.Sends.Peers[0].Acknowledged, f.CopiedBytes, &peer.Out)
	}
}

// sealed: no program can write or resize the memory that it may only read, whatever it tries. It is on huge pages here.
func (g *guest) sealed() {
	g.Helper()
	r := dialRaw(g.T, g.dir)
	r.send(&wire.Hello{Name: "reader", Session: 7})
	body, _, fds := r.receive()
	w, is := body.(*wire.Welcome)
	if !is || len(fds) != 1 {
		g.Fatalf("the hello is answered with %+v and %d descriptors", body, len(fds))
	}
	defer unix.Close(fds[0])
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fds[0]), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		g.Fatal(err) // root may
	}
	defer unix.Close(again)
	const huge = 2 << 20
	for fd, want := range map[int]error{fds[0]: unix.EACCES, again: unix.EPERM} {
		if b, err := unix.Mmap(fd, 0, huge, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); !errors.Is(err, want) {
			g.Errorf("mapped to write: %d bytes, %v, want %v", len(b), err, want)
		}
	}
	for _, size := range []int64{0, int64(w.In) + huge} {
		if err := unix.Ftruncate(again, size); !errors.Is(err, unix.EPERM) {
			g.Errorf("resized to %d bytes: %v", size, err)
		}
	}
	if err := unix.Fallocate(again, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, huge); !errors.Is(err, unix.EPERM) {
		g.Errorf("a page is taken away: %v", err)
	}
	b, err := unix.Mmap(fds[0], 0, int(w.In), unix.PROT_READ, unix.MAP_SHARED)
	testenv.Must(g, err)
	if err := unix.Mprotect(b, unix.PROT_READ|unix.PROT_WRITE); !errors.Is(err, unix.EACCES) {
		g.Errorf("mprotect: %v", err)
	}
	if err := errors.Join(unix.Munmap(b), r.conn.Close()); err != nil {
		g.Error(err)
	}
}
