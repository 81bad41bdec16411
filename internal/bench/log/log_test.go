package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// The resources of the two sides.
const (
	serverCPU = 0
	clientCPU = 1
	port      = 7471
	linkMTU   = 4200 // a packet holds nearly all of a record of 4096 bytes
	regionMiB = 128
	header    = 64 // bytes that a message of ours has in front of a record
	window    = 4  // records that a client may have under way, as far as the region has room: those of 4096 bytes land in extents
	gather    = 10 * time.Millisecond
)

// bed is the machinery of the comparison: programs, and a veth pair for each side.
type bed struct {
	*testing.T
	pairs          [2]*testenv.Pair
	unifiedd, load string // paths of programs
	server, client string
	records        string // xsk-records
	dir            string // on the disk
	verifies       bool   // that all records are in the logs
}

// TestAgainstTCP compares in the form that UNIFIEDD_BENCH names and leaves table, JSON and plot in
// build/bench. The table shows a missed bar; the test does not fail, since on a busy machine the
// cause may be other load.
func TestAgainstTCP(t *testing.T) {
	b := newBed(t)
	form, err := bench.WantedForm()
	if err != nil {
		t.Fatal(err)
	}
	wanted, err := bench.WantedCases()
	if err != nil {
		t.Fatal(err)
	}
	b.verifies = form == bench.Short
	r := bench.NewReport("log", "unifiedd", "log-server (C, epoll, O_DIRECT)")
	r.NoteLoad("before")
	for _, w := range works(form) {
		if !wanted.MatchString(w.name()) {
			continue
		}
		c := newContest(w, b.programs(w, spanOf(form)))
		if err := c.Rounds(t.Context(), form.Rounds); err != nil {
			t.Fatal(err)
		}
		r.Comparisons = append(r.Comparisons, c.Comparisons()...)
	}
	r.NoteLoad("after")
	r.Notes = append(r.Notes,
		fmt.Sprintf("%d rounds, in turn, fresh processes for each run of %v, the server on CPU %d and the clients on CPU %d, %d record of each client under way; %s form.",
			form.Rounds, spanOf(form).counted, serverCPU, clientCPU, depth, form.Name),
		"The whole machine's time is all in which a processor was not idle, whatever else ran included; that of both ends' processes has no interrupts and no threads of the kernel.",
		"unifiedd's worker and its clients spin; log-server and log-client sleep in epoll.",
		"The packets alone: ours is xsk-records, which exchanges a log's packets over AF_XDP and does nothing else, without a disk; theirs is the server as above.")
	if err := r.Finish(b.Output(), form, b.TempDir(), "log"); err != nil {
		b.Error(err)
	}
}

// works are the cases; the short form has one of each kind.
func works(form bench.Form) (all []work) {
	if form == bench.Short {
		return []work{{64, 4, received, gather}, {4096, 4, durable, 0}}
	}
	for _, each := range []time.Duration{0, gather} {
		for _, size := range []int{64, 512, 4096} {
			for _, clients := range []int{1, 8, 64} {
				all = append(all, work{size, clients, received, each})
			}
		}
	}
	for _, size := range []int{64, 4096} {
		for _, clients := range []int{1, 64} {
			all = append(all, work{size, clients, durable, 0})
		}
	}
	return all
}

// spanOf returns half of the form's span, since there are many cases. It is at least 500 ms, since a busy
// machine may stop for shorter times.
func spanOf(form bench.Form) span {
	counted := max(form.Span/2, 500*time.Millisecond)
	return span{warm: counted / 2, counted: counted}
}

func newBed(t *testing.T) *bed {
	testenv.Root(t)
	if runtime.NumCPU() < 2 {
		t.Fatal("server and clients need a CPU each")
	}
	testenv.HugePages(t, 2*(regionMiB+4)<<20)
	b := &bed{T: t, dir: testenv.DiskDir(t), unifiedd: testenv.Build(t, "cmd/unifiedd"), load: testenv.Build(t, "selftests/unified-flow-test"),
		server: compile(t, "log-server"), client: compile(t, "log-client"),
		records: testenv.Compile(t, "../../../selftests/peers/xsk-peer/xsk-records.c", "-lxdp", "-lbpf")}
	for k := range b.pairs {
		b.pairs[k] = testenv.NewPair(t, testenv.PairOptions{MTU: linkMTU})
	}
	for _, e := range []*testenv.End{&b.pairs[1].A, &b.pairs[1].B} {
		e.Run(t, "ethtool", "-K", e.Ifname, "tx", "on", "rx", "on", "tso", "on", "gso", "on", "gro", "on")
	}
	return b
}

// programs returns the programs that do a work.
func (b *bed) programs(w work, s span) programs {
	return programs{
		ours:    func(context.Context) (sample, error) { return b.ours(w, s) },
		theirs:  func(context.Context) (sample, error) { return b.theirs(w, s) },
		packets: func(context.Context) (sample, error) { return b.packets(w, s) },
		disk: func(context.Context) (sample, error) {
			return writeAndFlush(b.dir, w.clients*w.size, w.clients, serverCPU, s)
		},
	}
}

// ours measures the log of unifiedd.
func (b *bed) ours(w work, s span) (got sample, err error) {
	p := b.pairs[0]
	p.A.AwaitNoProgram(b.T)
	p.B.AwaitNoProgram(b.T)
	file := filepath.Join(b.dir, "unifiedd.yaml")
	if err := os.WriteFile(file, []byte(b.config(w)), 0o600); err != nil {
		return sample{}, err
	}
	got, _, err = b.run(p, b.listens(p), []string{b.unifiedd, "run", "-c", file}, append([]string{b.load, "load", "-json", "-spin", "-device", "roce:" + p.A.Ifname,
		"-to", fmt.Sprintf("%s:%d", p.B.IP, port)}, w.flags(s)...))
	if err == nil && b.verifies {
		err = verifyOurs(b.unifiedd, filepath.Join(b.dir, "ours"), got.last)
	}
	return got, errors.Join(err, b.clear())
}

// config is the daemon's configuration.
func (b *bed) config(w work) string {
	return fmt.Sprintf(`
control: {socket: %[1]s/control.sock}
region: {size: %[2]dMiB, extent: 256KiB, extents: 128}
workers: [{name: main, wait: spin}]
flows:
  - name: log
    from: {rdma: "roce:%[3]s", listen: "%[4]s:%[5]d", clients: %[6]d, window: %[8]d, message: %[9]dKiB}
    to: {file: %[1]s/ours, acknowledge: %[7]s, segment: {size: 256MiB, keep: 2}%[10]s}
`, b.dir, regionMiB, b.pairs[0].B.Ifname, b.pairs[0].B.IP, port, w.clients, w.durability, window, (w.size+1023)/1024, w.toDisk())
}

// theirs measures the TCP server.
func (b *bed) theirs(w work, s span) (got sample, err error) {
	p, file := b.pairs[1], filepath.Join(b.dir, "theirs")
	got, said, err := b.run(p, b.listens(p), []string{b.server, strconv.Itoa(port), file, strconv.Itoa(512 << 20), w.durability, milliseconds(w.gather)},
		append([]string{b.client, p.B.IP.String(), strconv.Itoa(port)}, w.words(s)...))
	if err == nil && b.verifies {
		err = verifyTheirs(file, said)
	}
	return got, errors.Join(err, b.clear())
}

// packets measures how long AF_XDP takes for the packets of ours.
func (b *bed) packets(w work, s span) (got sample, err error) {
	p := b.pairs[0]
	p.A.AwaitNoProgram(b.T)
	p.B.AwaitNoProgram(b.T)
	size := strconv.Itoa(header + w.size)
	got, _, err = b.run(p, func() bool { return p.B.HasProgram(b.T) }, []string{b.records, p.B.Ifname, p.A.MAC.String(), "server", size},
		[]string{b.records, p.A.Ifname, p.B.MAC.String(), "client", size, strconv.Itoa(depth * w.clients), milliseconds(s.warm), milliseconds(s.counted)})
	return got, err
}

// listens returns a function that reports whether a server waits for clients.
func (b *bed) listens(p *testenv.Pair) func() bool {
	return func() (yes bool) {
		p.B.Do(b.T, func() { yes = bench.Listens("tcp", port) })
		return yes
	}
}

// run starts a server and, when it is ready, measures the clients. said is the server's output.
func (b *bed) run(p *testenv.Pair, ready func() bool, server, clients []string) (s sample, said string, err error) {
	ended := make(chan error, 1)
	cmd := pinned(&p.B, serverCPU, server)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Start(); err != nil {
		return s, "", err
	}
	go func() { ended <- cmd.Wait() }()
	if err = bench.AwaitServer(b.Context(), ready, ended); err == nil {
		s, err = measure(cmd.Process.Pid, pinned(&p.A, clientCPU, clients))
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	if end := <-ended; err == nil {
		err = end
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, &log)
	}
	return s, out.String(), err
}

// clear removes the logs.
func (b *bed) clear() error {
	for _, pattern := range []string{"ours*", "theirs*"} {
		files, _ := filepath.Glob(filepath.Join(b.dir, pattern)) // the pattern is good
		for _, f := range files {
			if err := os.Remove(f); err != nil {
				return err
			}
		}
	}
	return nil
}

func pinned(e *testenv.End, cpu int, command []string) *exec.Cmd {
	return e.Command("taskset", append([]string{"-c", strconv.Itoa(cpu)}, command...)...)
}

// compile compiles one of the peers.
func compile(t *testing.T, name string) string {
	t.Helper()
	return testenv.Compile(t, "../../../selftests/peers/log-peer/"+name+".c", "-msse4.2", "-pthread")
}
