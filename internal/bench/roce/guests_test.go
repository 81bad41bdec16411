//go:build lab

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

// The wire between two guests: docs/lab.md. The tests use a port of their own to start and stop
// each other's programs.
const (
	wireCard   = "link0"
	wireServer = "10.78.0.2"
	wirePort   = ":18601"
)

// programVariable names unified-rdma-test.
const programVariable = "UNIFIEDD_RDMA_TEST"

// TestBetweenGuests compares with the programs of perftest over Soft-RoCE, in the form that UNIFIEDD_BENCH
// names. Only make lab-bench runs it, in both guests of a pair. The second guest has the servers.
func TestBetweenGuests(t *testing.T) {
	g := newGuest(t)
	if os.Getenv("UNIFIEDD_LAB_HOST") == "2" {
		g.serves(t)
	} else {
		g.asks(t)
	}
}

// guest is one of the two: its card, with a Soft-RoCE device, and one processor.
type guest struct {
	place
	program, device string
}

func newGuest(t *testing.T) *guest {
	t.Helper()
	g := &guest{program: os.Getenv(programVariable)}
	if _, err := os.Stat(g.program); err != nil {
		t.Fatalf("%s must name unified-rdma-test: %v", programVariable, err)
	}
	if err := os.WriteFile("/sys/devices/system/cpu/cpu1/online", []byte("0"), 0); err != nil {
		t.Fatalf("have one processor: %v", err)
	}
	g.device = labenv.SoftRoCE(t, wireCard)
	here := end{card: wireCard, address: wireServer, cpu: -1}
	g.place = place{server: here, client: here}
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
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	var e errand
	for in.Decode(&e) == nil {
		if err := g.errand(t.Context(), e, in, out); err != nil {
			t.Fatal(err)
		}
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
	s, err := p.serve(ctx, g.place, work{size: e.Size, count: e.Count, bandwidth: e.Bandwidth}, bench.Listens)
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
func (g *guest) asks(t *testing.T) {
	form, err := bench.WantedForm()
	if err != nil {
		t.Fatal(err)
	}
	var conn net.Conn
	testenv.Wait(t, 30*time.Second, "the servers' guest", func() bool {
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
	r := bench.NewReport("RoCE on AF_XDP between two lab guests", "unified-rdma-test", "Soft-RoCE, "+perftestVersion(t))
	r.CPUs = 1 // of each guest, by now
	r.Notes = []string{
		fmt.Sprintf("%d pairs of runs, in turn, fresh processes for each, a guest with one processor for each end, virtio-net; %s form.",
			form.Rounds, form.Name),
		fmt.Sprintf("Each has the MTU that suits it best: Soft-RoCE %d, for a path MTU of 4096; AF_XDP %d, for 2048, as the driver has zero copy for packets of one frame only.", linkMTU, frameMTU),
		"The servers of unified-rdma-test spin; that of perftest's WRITE sleeps, and the kernel does the work, which its processor time does not have.",
		"The guests' processors are emulated: only the ratios mean something."}
	for _, c := range g.contests(t, form) {
		r.Comparisons = append(r.Comparisons, run(t, c, form.Rounds)...)
	}
	if err := r.Print(os.Stdout, "lab-roce"); err != nil {
		t.Error(err)
	}
}

// contests returns the cases: all, those selected, or two in the short form.
func (g *guest) contests(t *testing.T, form bench.Form) (all []*contest) {
	t.Helper()
	wanted, err := bench.WantedCases()
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range []string{"send", "write"} {
		for _, size := range []int{barred, 4096, chunk} {
			name := fmt.Sprintf("%s of %s", op, bytes(size))
			if wanted.MatchString(name) && (form != bench.Short || op == "write" && size != 4096) {
				all = append(all, betweenGuests(g.place, op, size, form, g.program, g.device))
			}
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s=%s: there is no such case", bench.CasesVariable, wanted)
	}
	return all
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
