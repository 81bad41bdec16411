package blocks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

const (
	serverCPU = 0
	clientCPU = 1
	linkMTU   = 4200 // a packet holds 4 KiB
	port      = 7472
	depth     = 32
	regionMiB = 160
	cached    = 8 << 20 // bytes that are read over and over, from a cache twice as large
)

// TestAgainstLocalFio compares reads over RDMA with fio's reads of the same file.
func TestAgainstLocalFio(t *testing.T) {
	b := newBed(bench.Start(t, "blocks", "blocks over RDMA", "unifiedd and unified-flow-test", "fio, on the machine with the disk"))
	disk, cache := b.ours(0), b.ours(cached)
	b.compare(4<<10, depth, "fio", rateBar, disk, b.fio)
	b.compare(64<<10, depth, "fio", rateBar, disk, b.fio)
	b.compare(64<<10, depth, "fio; packets received on the client's CPU", 0, b.steered(disk), b.fio)
	b.compare(64<<10, depth, "from the cache; fio from the disk", 0, cache, b.fio)
	b.compare(4<<10, depth, "from the cache; fio from the disk", 0, cache, b.fio)
	b.Finish(
		fmt.Sprintf("Runs of %v, in turn, fresh processes for each; the daemon's worker on CPU %d, the client and fio on CPU %d; MTU %d.", b.Form.Span, serverCPU, clientCPU, linkMTU),
		fmt.Sprintf("RoCE in software over veth. The client compares one request in %d with what must be there, fio none. A round trip without a disk is in the cases from the cache.", verified))
}

// bed is a file, the programs, and two namespaces.
type bed struct {
	*bench.Report
	pair                     *testenv.Pair
	dir, file                string
	unifiedd, flowTest, tool string
}

func newBed(r *bench.Report) *bed {
	testenv.HugePages(r, regionMiB<<20+clientRegion+16<<20)
	b := &bed{Report: r, dir: testenv.DiskDir(r), unifiedd: testenv.Program(r, "cmd/unifiedd"), flowTest: testenv.Program(r, "selftests/unified-flow-test"), tool: testenv.Tool(r, "fio")}
	b.file, b.pair = filepath.Join(b.dir, "blocks"), testenv.NewPair(r, testenv.PairOptions{MTU: linkMTU})
	if out, err := exec.Command(b.flowTest, "make", "-file", b.file, "-size", fmt.Sprint(max(cached, b.Form.Share(1<<30)>>20<<20)), "-seed", fmt.Sprint(seed)).CombinedOutput(); err != nil {
		r.Fatalf("make the file: %v\n%s", err, out)
	}
	return b
}

// compare adds a case: blocks of size bytes, depth requests in flight.
func (b *bed) compare(size, depth int, rival string, bar float64, ours, theirs reader) {
	b.Helper()
	c := &bench.Contest[sample]{Name: fmt.Sprintf("%d KiB, depth %d, %s", size>>10, depth, rival)}
	for _, read := range []reader{ours, theirs} {
		c.Programs = append(c.Programs, func(ctx context.Context) (sample, error) { return read(ctx, size, depth, b.Form.Span) })
	}
	c.Measures = []bench.Measure[sample]{
		{Metric: "bytes", Unit: "MB/s", Better: bench.More, Bar: bar, Theirs: 1, Of: func(s sample) float64 { return s.rate * float64(size) / 1e6 }},
		{Metric: "50%", Unit: "µs", Better: bench.Less, Theirs: 1, Of: func(s sample) float64 { return s.p50 }},
		{Metric: "99%", Unit: "µs", Better: bench.Less, Theirs: 1, Of: func(s sample) float64 { return s.p99 }},
		{Metric: "99.9%", Unit: "µs", Better: bench.Less, Theirs: 1, Of: func(s sample) float64 { return s.p99_9 }},
	}
	bench.Compare(b.Report, c)
}

// fio reads the file locally.
func (b *bed) fio(ctx context.Context, size, depth int, span time.Duration) (sample, error) {
	return run(ctx, clientCPU, readFio, fioArgs(b.tool, b.file, size, depth, span))
}

// ours reads over RDMA: from the disk, or (within > 0) from the cache, which then holds the first
// within bytes.
func (b *bed) ours(within int) reader {
	return func(ctx context.Context, size, depth int, span time.Duration) (s sample, err error) {
		ctx, stop := context.WithTimeout(ctx, time.Minute)
		defer stop()
		server, err := b.serve(ctx, 2*within)
		if err != nil {
			return s, err
		}
		address := fmt.Sprintf("%s:%d", b.pair.B.IP, port)
		line := clientArgs(b.flowTest, "/run/netns/"+b.pair.A.Name, b.pair.A.Ifname, address, size, depth, span)
		if within > 0 {
			line = append(line, "-within", fmt.Sprint(within))
		}
		s, err = run(ctx, clientCPU, readOurs, line)
		server.process.Interrupt()
		return s, errors.Join(err, <-server.ended)
	}
}

// steered makes the client's CPU receive the client's packets, as with a card, instead of the sender's CPU:
// receive packet steering (Documentation/networking/scaling.rst of the kernel).
func (b *bed) steered(read reader) reader {
	return func(ctx context.Context, size, depth int, span time.Duration) (sample, error) {
		b.steer(1 << clientCPU)
		defer b.steer(0)
		return read(ctx, size, depth, span)
	}
}

// steer sets the mask of the CPUs that receive the client's packets; 0: the sender's CPU.
func (b *bed) steer(cpus int) {
	e := &b.pair.A
	set := fmt.Sprintf("echo %x > /sys/class/net/%s/queues/rx-0/rps_cpus", cpus, e.Ifname)
	if out, err := exec.Command("ip", "netns", "exec", e.Name, "sh", "-c", set).CombinedOutput(); err != nil { // with the namespace's /sys
		b.Fatalf("steer the packets of %s: %v\n%s", e.Ifname, err, out)
	}
}

// server is a daemon that serves the file.
type server struct {
	process *bench.Process
	ended   chan error
}

// serve starts a server, and waits until it listens.
func (b *bed) serve(ctx context.Context, cache int) (*server, error) {
	b.pair.A.AwaitNoProgram(b.T)
	b.pair.B.AwaitNoProgram(b.T)
	config := filepath.Join(b.dir, "unifiedd.yaml")
	if err := os.WriteFile(config, []byte(b.config(cache)), 0o600); err != nil {
		return nil, err
	}
	p, err := bench.StartProcess(ctx, serverCPU, "nsenter", "--net=/run/netns/"+b.pair.B.Name, "--", b.unifiedd, "run", "-c", config)
	if err != nil {
		return nil, err
	}
	s := &server{p, make(chan error, 1)}
	go func() {
		_, _, err := p.Wait()
		s.ended <- err
	}()
	err = bench.AwaitServer(ctx, func() (ready bool) {
		b.pair.B.Do(b.T, func() { ready = bench.Listens("tcp", port) })
		return ready
	}, s.ended)
	if err != nil {
		p.Kill()
		return nil, errors.Join(err, <-s.ended)
	}
	return s, nil
}

func (b *bed) config(cache int) string {
	return fmt.Sprintf(`
control: {socket: %[1]s/control.sock}
region: {size: %[2]dMiB, extent: 256KiB, extents: 128}
workers: [{name: main, wait: spin}]
flows:
  - name: blocks
    from: {file: %[3]s}
    to: {rdma: "roce:%[4]s", listen: "%[5]s:%[6]d", clients: 1, window: 64, transfer: 64KiB, cache: %[7]d}
`, b.dir, regionMiB, b.file, b.pair.B.Ifname, b.pair.B.IP, port, cache)
}
