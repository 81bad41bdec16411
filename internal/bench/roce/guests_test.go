package roce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// The wire between two guests: docs/background/testing.md. The tests use a port of their own to start and stop
// each other's programs.
const (
	wireCard   = "link0"
	wireServer = "10.78.0.2"
	wirePort   = ":18601"
)

// TestBetweenGuests compares with the programs of perftest over Soft-RoCE, between two guests. It runs in both, and the
// second guest has the servers.
func TestBetweenGuests(t *testing.T) {
	labenv.Guest(t)
	if os.Getenv("UNIFIEDD_LAB_HOST") == "2" {
		newGuest(t).serves(t)
		return
	}
	r := bench.Start(t, "lab-roce", "RoCE on AF_XDP between two lab guests", "unified-rdma-test", "Soft-RoCE, "+perftestVersion(t))
	newGuest(t).asks(r)
}

// The bars between guests, and of unified-rdma-test with perftest on one device.
const (
	softLatencyBar   = 0.5
	softBandwidthBar = 2
	latencyBar       = 1.05
	bandwidthBar     = 0.95
)

// TestAgainstPerftest compares unified-rdma-test with the programs of perftest, which do the same over the same Soft-RoCE
// device of a guest.
func TestAgainstPerftest(t *testing.T) {
	labenv.Guest(t)
	r := bench.Start(t, "lab-rdma", "RDMA over Soft-RoCE in the lab guest", "unified-rdma-test", perftestVersion(t))
	testenv.HugePages(t, 8<<20)
	const card, address = "virtio0", "10.79.0.1"
	path, device := testenv.Program(t, "selftests/unified-rdma-test"), labenv.SoftRoCE(t, card, address+"/24")
	p := place{pathMTU: 1024, server: end{card: card, device: device, address: address, cpu: serverCPU}}
	p.client = p.server
	p.client.cpu = clientCPU
	p.serve = func(ctx context.Context, g *program, w work) (server, error) {
		return g.serveHere(ctx, p, w, bench.Listens)
	}
	compare := func(op string, w work, n number, bar float64) {
		o, theirs := &runner{program: ours(path, op), place: p}, &runner{program: perftest(op, device), place: p}
		c := newContest(fmt.Sprintf("%s of %s", op, bytes(w.size)), w, o, theirs)
		c.duel(o, theirs, n, bar)
		bench.Compare(r, &c.Contest)
	}
	for _, op := range []string{"send", "write", "read"} {
		compare(op, work{size: 2, count: r.Form.Share(10_000)}, typical, latencyBar)
	}
	compare(fetchAdd, work{size: 8, count: r.Form.Share(10_000)}, typical, latencyBar)
	for _, size := range []int{4096, chunk} {
		for _, op := range []string{"send", "write", "read"} {
			compare(op, work{size: size, count: max(r.Form.Share(24<<20)/size, depth), bandwidth: true}, average, bandwidthBar)
		}
	}
	r.Finish(
		fmt.Sprintf("In turn, fresh processes for each run, both ends here, the server on CPU %d and the client on CPU %d; path MTU %d.", serverCPU, clientCPU, p.pathMTU),
		"In tests of bandwidth unified-rdma-test hands over up to 16 requests at once where as many are ready, and perftest one; it sleeps while its queue is full, but for WRITE.",
		"The guest's processors are emulated: only the ratios mean something.")
}

// guest is one of the two: its card, with a Soft-RoCE device, and one processor.
type guest struct {
	place
	program, device string
}

func newGuest(t *testing.T) *guest {
	t.Helper()
	g := &guest{program: testenv.Program(t, "selftests/unified-rdma-test")}
	testenv.Mustf(t, os.WriteFile("/sys/devices/system/cpu/cpu1/online", []byte("0"), 0), "have one processor")
	g.device = labenv.SoftRoCE(t, wireCard)
	here := end{card: wireCard, device: "roce:" + wireCard, address: wireServer, cpu: -1}
	g.place = place{server: here, client: here, pathMTU: pathMTU}
	return g
}

// prepare sets the MTU of this guest's end of the wire for a program.
func prepare(p *program) error {
	link, err := netlink.LinkByName(wireCard)
	if err == nil {
		err = netlink.LinkSetMTU(link, p.mtu)
	}
	if err != nil {
		return fmt.Errorf("have the wire carry packets of %d bytes for %s: %w", p.mtu, p.name, err)
	}
	return nil
}

// errand is a request from one guest to the other: to start a server, or to end it.
type errand struct {
	Ours      bool // unified-rdma-test, and not perftest
	Op        string
	Size      int
	Count     int
	Bandwidth bool
	Abandon   bool // the client failed: end it at once
}

// outcome is the answer.
type outcome struct {
	CPU   float64
	Error string
}

// serves handles requests until the other guest closes the connection.
func (g *guest) serves(t *testing.T) {
	l, err := net.Listen("tcp", wireServer+wirePort)
	testenv.Must(t, err)
	defer l.Close()
	conn, err := l.Accept()
	testenv.Must(t, err)
	defer conn.Close()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	var e errand
	for in.Decode(&e) == nil {
		testenv.Must(t, g.errand(t.Context(), e, in, out))
		e = errand{}
	}
}

// errand starts a server, reports that it is ready, and ends it on request.
func (g *guest) errand(ctx context.Context, e errand, in *json.Decoder, out *json.Encoder) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	p := perftest(e.Op, g.device)
	if e.Ours {
		p = ours(g.program, e.Op)
	}
	if err := prepare(p); err != nil {
		return err
	}
	s, err := p.serveHere(ctx, g.place, work{size: e.Size, count: e.Count, bandwidth: e.Bandwidth}, bench.Listens)
	if err != nil {
		return out.Encode(outcome{Error: err.Error()})
	}
	if err := out.Encode(outcome{}); err != nil {
		return err
	}
	var last errand
	if err := in.Decode(&last); err != nil || last.Abandon {
		cancel()
	}
	var o outcome
	if o.CPU, err = s.end(); err != nil {
		o.Error = err.Error()
	}
	return out.Encode(o)
}

// remote is a server in the other guest.
type remote struct {
	ctx context.Context
	in  *json.Decoder
	out *json.Encoder
}

// send sends a request to the other guest.
func (r *remote) send(e errand) (float64, error) {
	var o outcome
	err := r.out.Encode(e)
	if err == nil {
		err = r.in.Decode(&o)
	}
	if err == nil && o.Error != "" {
		err = fmt.Errorf("in the other guest: %s", o.Error)
	}
	return o.CPU, err
}

func (r *remote) end() (float64, error) { return r.send(errand{Abandon: r.ctx.Err() != nil}) }

// asks runs the clients, in the guest that has them.
func (g *guest) asks(r *bench.Report) {
	var conn net.Conn
	testenv.Wait(r, 30*time.Second, "the servers' guest", func() (yes bool) {
		var err error
		conn, err = net.DialTimeout("tcp", wireServer+wirePort, 5*time.Second)
		return err == nil
	})
	defer conn.Close()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	g.serve = func(ctx context.Context, p *program, w work) (server, error) {
		if err := prepare(p); err != nil {
			return nil, err
		}
		r := &remote{ctx, in, out}
		_, err := r.send(errand{Ours: p.name != "perftest", Op: p.op, Size: w.size, Count: w.count, Bandwidth: w.bandwidth})
		return r, err
	}
	r.CPUs = 1 // of each guest, by now
	for _, op := range []string{"send", "write"} {
		for _, size := range []int{barred, 4096} {
			c, o, theirs := g.contest(op, work{size: size, count: r.Form.Share(1000)})
			c.duel(o, theirs, typical, softLatencyBar)
			c.duel(o, theirs, tail, 0)
			bench.Compare(r, &c.Contest)
		}
		c, o, theirs := g.contest(op, work{size: chunk, count: max(r.Form.Share(64<<20)/chunk, depth), bandwidth: true})
		c.duel(o, theirs, average, softBandwidthBar)
		c.duel(o, theirs, cost, 0)
		bench.Compare(r, &c.Contest)
	}
	r.Finish(
		"In turn, fresh processes for each run, a guest with one processor for each end, virtio-net.",
		fmt.Sprintf("Each has the MTU that suits it best: Soft-RoCE %d, for a path MTU of 4096; AF_XDP %d, for 2048, as the driver has zero copy for packets of one frame only.", linkMTU, frameMTU),
		"The servers of unified-rdma-test spin; that of perftest's WRITE sleeps, and the kernel does the work, which its processor time does not have.",
		"The guests' processors are emulated: only the ratios mean something.")
}

// contest compares an operation with the same operation over Soft-RoCE.
func (g *guest) contest(op string, w work) (c *contest, o, theirs *runner) {
	o, theirs = &runner{program: ours(g.program, op), place: g.place}, &runner{program: perftest(op, g.device), place: g.place}
	return newContest(fmt.Sprintf("%s of %s", op, bytes(w.size)), w, o, theirs), o, theirs
}

// perftestVersion is the version that the programs print.
func perftestVersion(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), testenv.Tool(t, "ib_write_lat"), "--version").CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) { // its exit status has no meaning
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if text := strings.TrimSpace(line); strings.HasPrefix(text, "Version") {
			return "perftest " + strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(text, "Version"), ":"))
		}
	}
	t.Fatalf("ib_write_lat does not say which version it is: %q", out)
	return ""
}
