package blocks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/bench/contest"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

const (
	serverCPU = 0
	clientCPU = 1
	linkMTU   = 4200 // a packet holds 4 KiB
	narrowMTU = 1500 // four packets hold them
	port      = 7472
	depth     = 32
	regionMiB = 160
	cached    = 8 << 20 // bytes that are read over and over, from a cache twice as large
)

// TestAgainstLocalFio compares in the form that UNIFIEDD_BENCH names and leaves table, JSON and plot in
// build/bench. The table shows a missed bar; the test does not fail, since on a busy machine the cause may be
// other load.
func TestAgainstLocalFio(t *testing.T) {
	form, err := bench.WantedForm()
	if err != nil {
		t.Fatal(err)
	}
	wanted, err := bench.WantedCases()
	if err != nil {
		t.Fatal(err)
	}
	b := newBed(t, form)
	r := bench.NewReport("blocks over RDMA", "unifiedd and unified-flow-test", "fio, on the machine with the disk")
	r.NoteLoad("before")
	for _, c := range b.contests(form) {
		if !wanted.MatchString(c.Name) {
			continue
		}
		if err := c.Rounds(t.Context(), form.Rounds); err != nil {
			t.Fatal(err)
		}
		r.Comparisons = append(r.Comparisons, c.Comparisons()...)
	}
	r.NoteLoad("after")
	r.Notes = append(r.Notes, fmt.Sprintf("%d pairs of runs of %v, in turn, fresh processes for each; the daemon's worker on CPU %d, the client and fio on CPU %d; MTU %d; %s form.",
		form.Rounds, form.Span, serverCPU, clientCPU, linkMTU, form.Name),
		fmt.Sprintf("RoCE in software over veth. The client compares one request in %d with what must be there, fio none. A round trip without a disk is in the cases from the cache.", verified))
	if err := r.Finish(t.Output(), form, t.TempDir(), "blocks"); err != nil {
		t.Error(err)
	}
}

// bed is a file, the programs, and two namespaces.
type bed struct {
	*testing.T
	pair                     *testenv.Pair
	dir, file                string
	unifiedd, flowTest, tool string
}

func newBed(t *testing.T, form bench.Form) *bed {
	testenv.Root(t)
	if runtime.NumCPU() < 2 {
		t.Fatal("the two ends need a CPU each")
	}
	testenv.HugePages(t, regionMiB<<20+clientRegion+16<<20)
	b := &bed{T: t, dir: testenv.DiskDir(t), unifiedd: testenv.Build(t, "cmd/unifiedd"), flowTest: testenv.Build(t, "selftests/unified-flow-test"), tool: testenv.Tool(t, "fio")}
	b.file, b.pair = filepath.Join(b.dir, "blocks"), testenv.NewPair(t, testenv.PairOptions{MTU: linkMTU})
	size := 1 << 30
	if form == bench.Short {
		size = 32 << 20
	}
	if out, err := exec.Command(b.flowTest, "make", "-file", b.file, "-size", fmt.Sprint(size), "-seed", fmt.Sprint(seed)).CombinedOutput(); err != nil {
		t.Fatalf("make the file: %v\n%s", err, out)
	}
	return b
}

// contests are the cases; the short form has one of each kind.
func (b *bed) contests(form bench.Form) (all []*contest.Contest[sample]) {
	add := func(size, depth int, rival string, bar float64, ours, theirs reader) {
		all = append(all, newContest(size, depth, rival, bar, form.Span, ours, theirs))
	}
	disk, cache := b.ours(0), b.ours(cached)
	add(4<<10, depth, "fio", rateBar, disk, b.fio)
	add(64<<10, depth, "fio", rateBar, disk, b.fio)
	if form != bench.Short {
		add(4<<10, depth, "fio beside a spinner", 0, disk, b.besideSpinner)
		add(4<<10, 1, "fio", 0, disk, b.fio)
		add(64<<10, 1, "fio", 0, disk, b.fio)
		add(4<<10, depth, fmt.Sprintf("fio; MTU %d", narrowMTU), 0, b.narrow(disk), b.fio)
		add(64<<10, depth, "from the cache; fio from the disk", 0, cache, b.fio)
		add(64<<10, depth, "fio; packets received on the client's CPU", 0, b.steered(disk), b.fio)
	}
	add(4<<10, depth, "from the cache; fio from the disk", 0, cache, b.fio)
	return all
}

// fio reads the file locally.
func (b *bed) fio(ctx context.Context, size, depth int, span time.Duration) (sample, error) {
	return run(ctx, clientCPU, readFio, fioArgs(b.tool, b.file, size, depth, span))
}

// besideSpinner runs fio while the other processor is as busy as it is with ours.
func (b *bed) besideSpinner(ctx context.Context, size, depth int, span time.Duration) (s sample, err error) {
	spinning, stop := context.WithCancel(ctx)
	var spinner sync.WaitGroup
	spinner.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var set unix.CPUSet
		set.Set(serverCPU)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			b.Error(err)
		}
		for spinning.Err() == nil {
		}
	})
	s, err = b.fio(ctx, size, depth, span)
	stop()
	spinner.Wait()
	return s, err
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

// narrow makes a reader use a link with short packets.
func (b *bed) narrow(read reader) reader {
	return func(ctx context.Context, size, depth int, span time.Duration) (sample, error) {
		b.setMTU(narrowMTU)
		defer b.setMTU(linkMTU)
		return read(ctx, size, depth, span)
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

func (b *bed) setMTU(n int) {
	for _, e := range []*testenv.End{&b.pair.A, &b.pair.B} {
		e.Run(b.T, "ip", "link", "set", e.Ifname, "mtu", fmt.Sprint(n))
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
	p, err := bench.Start(ctx, serverCPU, "nsenter", "--net=/run/netns/"+b.pair.B.Name, "--", b.unifiedd, "run", "-c", config)
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
