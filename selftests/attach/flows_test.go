package attach

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/attached"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/selftests/daemon"
)

// pair is two hosts, a daemon on B with two programs, and its socket.
type pair struct {
	*testenv.Pair
	dir, socket string
}

func newPair(t *testing.T) *pair {
	t.Helper()
	testenv.Root(t)
	dir := t.TempDir()
	return &pair{testenv.NewPair(t, testenv.PairOptions{}), dir, filepath.Join(dir, "attach.sock")}
}

// launch starts the daemon with flows.
func (p *pair) launch(t *testing.T, flows string) *daemon.Daemon {
	t.Helper()
	d := daemon.Launch(t, program, &p.B, p.dir, fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
workers: [{name: main}]
attach:
  socket: %s
  programs:
    - {name: writer, user: "%d", out: 4MiB}
    - {name: reader, user: "%[2]d", in: 8MiB}
flows:
%s`, p.socket, os.Getuid(), flows))
	d.Running(t)
	return d
}

// flow returns the status of a daemon's only flow.
func flow(t *testing.T, d *daemon.Daemon) *status.Flow {
	t.Helper()
	s, err := d.Status()
	if err != nil || len(s.Flows) != 1 {
		t.Fatalf("status: %d flows, %v", len(s.Flows), err)
	}
	return &s.Flows[0]
}

// TestReservedPages: the daemon's parent process reserves huge pages for the region and for what programs read.
func TestReservedPages(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	socket := filepath.Join(dir, "attach.sock")
	d := daemon.Launch(t, program, daemon.Here{}, dir, fmt.Sprintf(`
region: {size: 16MiB, reserve: true}
attach:
  socket: %s
  programs:
    - {name: other, user: root, in: 2MiB, out: 2MiB}
    - {name: reader, user: root, in: 4MiB}
flows:
  - {name: md, from: {generate: 500, rate: 1000}, to: {attach: reader}}
`, socket))
	d.Running(t)
	reader := daemon.StartClient(t, flowTest, daemon.Here{}, "take", "-socket", socket, "-as", "reader", "-flow", "md", "-count", "100")
	reader.Await(t, 20*time.Second)
	if !strings.Contains(reader.Out.String(), "took 100 messages") {
		t.Errorf("the program says: %s", &reader.Out)
	}
	d.Terminate(t)
}

// TestFromInterface: a program gets each packet of an interface that the filter takes, after one copy.
func TestFromInterface(t *testing.T) {
	p := newPair(t)
	d := p.launch(t, fmt.Sprintf("  - {name: md, from: {interface: %s, filter: udp dst port 5000}, to: {attach: reader, policy: wait}}\n", p.B.Ifname))
	reader := daemon.StartClient(t, flowTest, daemon.Here{}, "take", "-socket", p.socket, "-as", "reader", "-flow", "md", "-count", "5000")
	d.Until(t, "the program to have the flow open", func(s *status.Daemon) bool { return s.Flows[0].Gives.Open })
	p.A.Run(t, flowTest, "send", "-to", p.B.IP.String()+":5000", "-size", "500", "-count", "5000", "-rate", "20000")
	reader.Await(t, 20*time.Second)
	if !strings.Contains(reader.Out.String(), "took 5000 messages") || strings.Contains(reader.Out.String(), "lost") {
		t.Errorf("the program says: %s", &reader.Out)
	}
	f := flow(t, d)
	if want := uint64(5000 * (500 + 42)); f.Gives.Messages != 5000 || f.CopiedBytes["attach"] != want || f.Dropped["slow_program"] != 0 || f.Dropped["no_program"] != 0 {
		t.Errorf("given %+v, copied %v, want %d; lost %v", *f.Gives, f.CopiedBytes, want, f.Dropped)
	}
}

// TestStopWithoutProgram: a flow that waits for its program, which has never come, ends at once. What it had received is
// lost and counted.
func TestStopWithoutProgram(t *testing.T) {
	p := newPair(t)
	d := p.launch(t, "  - {name: md, from: {generate: 200, rate: 10000}, to: {attach: reader, policy: wait}}\n")
	d.Until(t, "the flow to wait for its program", func(s *status.Daemon) bool { return s.Flows[0].Stalls > 0 })
	begun := time.Now()
	d.Terminate(t)
	if took := time.Since(begun); took > testenv.Within(5*time.Second) {
		t.Errorf("the daemon took %v to end", took)
	}
}

// TestFromClients: a program gets the messages of RDMA clients from where the device wrote them: no byte is copied by
// the flow.
func TestFromClients(t *testing.T) {
	p := newPair(t)
	d := p.launch(t, fmt.Sprintf("  - {name: feed, from: {rdma: \"roce:%s\", listen: \"%s:7471\", message: 1KiB, window: 64, clients: 2}, to: {attach: reader, policy: wait}}\n", p.B.Ifname, p.B.IP))
	reader := daemon.StartClient(t, flowTest, daemon.Here{}, "take", "-socket", p.socket, "-as", "reader", "-flow", "feed", "-count", "10000")
	d.Until(t, "the program to have the flow open", func(s *status.Daemon) bool { return s.Flows[0].Gives.Open })
	p.A.Run(t, flowTest, "append", "-device", "roce:"+p.A.Ifname, "-ordinary", "-to", p.B.IP.String()+":7471", "-size", "512", "-count", "10000")
	reader.Await(t, 20*time.Second)
	if !strings.Contains(reader.Out.String(), "took 10000 messages, 5120000 bytes") || strings.Contains(reader.Out.String(), "lost") {
		t.Errorf("the program says: %s", &reader.Out)
	}
	if f := flow(t, d); f.Gives.Messages != 10000 || f.CopiedBytes["attach"] != 0 {
		t.Errorf("given %+v, copied %v", *f.Gives, f.CopiedBytes)
	}
}

// TestToPeers: messages of a program reach a peer, and are done when the peer has acknowledged them. The flow copies
// each once.
func TestToPeers(t *testing.T) {
	p := newPair(t)
	const n = 2000
	peer := daemon.StartClient(t, flowTest, &p.A, "receive", "-device", "roce:"+p.A.Ifname, "-ordinary", "-listen", p.A.IP.String()+":7471", "-flow", "orders", "-count", fmt.Sprint(n))
	d := daemon.Launch(t, program, &p.B, p.dir, fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
workers: [{name: main}]
attach: {socket: %s, programs: [{name: writer, user: "%d", out: 4MiB}]}
flows:
  - {name: orders, from: {attach: writer, message: 1KiB}, to: {rdma: "roce:%s", peers: [{name: a, address: "%s:7471"}]}}
`, p.socket, os.Getuid(), p.B.Ifname, p.A.IP))
	d.Until(t, "the peer to be connected", func(s *status.Daemon) bool {
		return len(s.Flows) == 1 && s.Flows[0].Sends != nil && s.Flows[0].Sends.Peers[0].State == "connected"
	})
	p.B.Run(t, flowTest, "submit", "-socket", p.socket, "-as", "writer", "-flow", "orders", "-size", "500", "-count", fmt.Sprint(n))
	peer.Await(t, 20*time.Second)
	if !strings.Contains(peer.Out.String(), fmt.Sprint(n)) {
		t.Errorf("the peer says: %s", &peer.Out)
	}
	if f := flow(t, d); f.Sends.Peers[0].Acknowledged != n || f.CopiedBytes["attach"] != n*500 {
		t.Errorf("the peer has acknowledged %d of %d; copied %v, want %d", f.Sends.Peers[0].Acknowledged, n, f.CopiedBytes, n*500)
	}
}

// TestBlocks: a program reads blocks of a file. The disk reads them into memory that the program maps, and wrong
// requests are refused without harm.
func TestBlocks(t *testing.T) {
	testenv.Leaks(t)
	dir := testenv.DiskDir(t)
	file, want := filepath.Join(dir, "image"), make([]byte, 1<<20)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(want) // never fails
	testenv.Must(t, os.WriteFile(file, want, 0o600))
	d := start(t, dir, "sleep", fmt.Sprintf("  - {name: image, from: {file: %s}, to: {attach: reader, queue: 64}}\n", file))
	k := attach(t, dir, "reader", 0)
	r, err := k.Blocks("image", 0)
	testenv.Must(t, err)
	if r.Size() != 1<<20 || r.Align() == 0 || r.Longest() != 4096 {
		t.Errorf("%d bytes, aligned to %d, requests of up to %d", r.Size(), r.Align(), r.Longest())
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(30*time.Second))
	defer cancel()
	const requests = 2000
	var got [64]attached.Block
	asked, answered, refused := 0, 0, 0
	for answered < requests {
		for asked < requests {
			offset, length := uint64(asked%256)*4096, uint32(4096)
			switch asked % 100 {
			case 50:
				offset = 1 << 20
			case 60:
				offset++
			case 70:
				length = 1 << 30
			}
			if _, err := r.Request(offset, length); err != nil {
				break
			}
			asked++
		}
		n, err := r.Poll(got[:])
		testenv.Must(t, err)
		for _, b := range got[:n] {
			answered++
			if b.Err != nil {
				refused++
				continue
			}
			if !bytes.Equal(b.Data, want[b.Offset:b.Offset+uint64(len(b.Data))]) || b.Offset%4096 != 0 {
				t.Fatalf("the blocks at %d are others", b.Offset)
			}
		}
		r.Release(got[:n])
		if n == 0 {
			testenv.Must(t, r.Wait(ctx, time.Second))
		}
	}
	if refused != 3*requests/100 {
		t.Errorf("%d requests are refused, want %d", refused, 3*requests/100)
	}
	f := d.Status().Flows[0]
	if f.Packets != requests-uint64(refused) || f.CopiedBytes["attach"] != 0 {
		t.Errorf("%d requests are served, copied %v", f.Packets, f.CopiedBytes)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
