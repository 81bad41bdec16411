package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
)

// bed is the machinery of the comparison: programs, and a veth pair for each side.
type bed struct {
	*bench.Report
	pairs          [2]*testenv.Pair
	unifiedd, load string // paths of programs
	server, client string
	records        string // xsk-records
	dir            string // on the disk
}

// TestAgainstTCP compares a log of unifiedd with one behind a TCP server in C.
func TestAgainstTCP(t *testing.T) {
	b := newBed(bench.Start(t, "log", "log", "unifiedd", "log-server (C, epoll, O_DIRECT)"))
	// Half of the form's span, since there are many cases, but at least 500 ms, since a busy machine may stop for shorter times.
	counted := max(b.Form.Span/2, 500*time.Millisecond)
	for _, w := range works() {
		bench.Compare(b.Report, b.contest(w, span{warm: counted / 2, counted: counted}))
	}
	b.Finish(
		fmt.Sprintf("In turn, fresh processes for each run of %v, the server on CPU %d and the clients on CPU %d, %d record of each client under way.", counted, serverCPU, clientCPU, depth),
		"The whole machine's time is all in which a processor was not idle, whatever else ran included; that of both ends' processes has no interrupts and no threads of the kernel.",
		"unifiedd's worker and its clients spin; log-server and log-client sleep in epoll.",
		"The packets alone: ours is xsk-records, which exchanges a log's packets over AF_XDP and does nothing else, without a disk; theirs is the server as above.")
}

func newBed(r *bench.Report) *bed {
	testenv.HugePages(r, 2*(regionMiB+4)<<20)
	peer := func(name string, flags ...string) string {
		return testenv.Compile(r, bench.Path(r, "selftests/peers/"+name+".c"), flags...)
	}
	b := &bed{Report: r, dir: testenv.DiskDir(r), unifiedd: testenv.Program(r, "cmd/unifiedd"), load: testenv.Program(r, "selftests/unified-flow-test"),
		server: peer("log-peer/log-server", "-msse4.2", "-pthread"), client: peer("log-peer/log-client", "-msse4.2", "-pthread"), records: peer("xsk-peer/xsk-records", "-lxdp", "-lbpf")}
	for k := range b.pairs {
		b.pairs[k] = testenv.NewPair(r, testenv.PairOptions{MTU: linkMTU})
	}
	for _, e := range []*testenv.End{&b.pairs[1].A, &b.pairs[1].B} {
		e.Run(r, "ethtool", "-K", e.Ifname, "tx", "on", "rx", "on", "tso", "on", "gso", "on", "gro", "on")
	}
	return b
}

// bar is the most of ours relative to theirs at received, for the latency and for the processors' time.
const bar = 0.5

// The programs of a contest, by index. The last one is the packets alone at received, and the disk alone at durable.
const (
	ours = iota
	theirs
	alone
)

// contest compares ours with theirs. For a durable log it also compares ours with the disk alone, and otherwise our
// packets alone with theirs.
func (b *bed) contest(w work, s span) *bench.Contest[sample] {
	typical := func(s sample) float64 { return s.typical / 1e3 }
	machine := func(s sample) float64 { return float64(s.machine) / 1e3 / s.records }
	rate := func(s sample) float64 { return s.records / s.seconds / 1e3 }
	held := 0.0
	if w.durability == received {
		held = bar
	}
	c := &bench.Contest[sample]{Name: w.name(), Programs: []bench.Run[sample]{
		func(context.Context) (sample, error) { return b.ours(w, s) },
		func(context.Context) (sample, error) { return b.theirs(w, s) },
	}, Measures: []bench.Measure[sample]{
		{Metric: "latency, median", Unit: "µs", Better: bench.Less, Bar: held, Theirs: theirs, Of: typical},
		{Metric: "latency, 99%", Unit: "µs", Better: bench.Less, Theirs: theirs, Of: func(s sample) float64 { return s.tail / 1e3 }},
		{Metric: "whole machine", Unit: "µs/record", Better: bench.Less, Bar: held, Theirs: theirs, Of: machine},
		{Metric: "both ends' processes", Unit: "µs/record", Better: bench.Less, Theirs: theirs, Of: func(s sample) float64 { return float64(s.spent) / 1e3 / s.records }},
		{Metric: "appends", Unit: "k/s", Better: bench.More, Theirs: theirs, Of: rate},
	}}
	if w.durability == durable {
		c.Programs = append(c.Programs, func(context.Context) (sample, error) {
			return writeAndFlush(b.dir, w.clients*w.size, w.clients, serverCPU, s)
		})
		c.Measures = append(c.Measures,
			bench.Measure[sample]{Metric: "latency; the disk's write and flush", Unit: "µs", Better: bench.Less, Theirs: alone, Of: typical},
			bench.Measure[sample]{Metric: "appends; the disk, one of each client a flush", Unit: "k/s", Better: bench.More, Theirs: alone, Of: rate})
		return c
	}
	c.Programs = append(c.Programs, func(context.Context) (sample, error) { return b.packets(w, s) })
	c.Measures = append(c.Measures,
		bench.Measure[sample]{Metric: "latency, median; the packets alone", Unit: "µs", Better: bench.Less, Ours: alone, Theirs: theirs, Of: typical},
		bench.Measure[sample]{Metric: "whole machine; the packets alone", Unit: "µs/record", Better: bench.Less, Ours: alone, Theirs: theirs, Of: machine})
	return c
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
	got, err = b.run(p, b.listens(p), []string{b.unifiedd, "run", "-c", file}, append([]string{b.load, "load", "-json", "-spin", "-device", "roce:" + p.A.Ifname,
		"-to", fmt.Sprintf("%s:%d", p.B.IP, port)}, w.flags(s)...))
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
	got, err = b.run(p, b.listens(p), []string{b.server, strconv.Itoa(port), file, strconv.Itoa(512 << 20), w.durability, milliseconds(w.gather())},
		append([]string{b.client, p.B.IP.String(), strconv.Itoa(port)}, w.words(s)...))
	return got, errors.Join(err, b.clear())
}

// packets measures how long AF_XDP takes for the packets of ours.
func (b *bed) packets(w work, s span) (got sample, err error) {
	p := b.pairs[0]
	p.A.AwaitNoProgram(b.T)
	p.B.AwaitNoProgram(b.T)
	size := strconv.Itoa(header + w.size)
	return b.run(p, func() bool { return p.B.HasProgram(b.T) }, []string{b.records, p.B.Ifname, p.A.MAC.String(), "server", size},
		[]string{b.records, p.A.Ifname, p.B.MAC.String(), "client", size, strconv.Itoa(depth * w.clients), milliseconds(s.warm), milliseconds(s.counted)})
}

// listens returns a function that reports whether a server waits for clients.
func (b *bed) listens(p *testenv.Pair) func() bool {
	return func() (yes bool) {
		p.B.Do(b.T, func() { yes = bench.Listens("tcp", port) })
		return yes
	}
}

// run starts a server and, when it is ready, measures the clients.
func (b *bed) run(p *testenv.Pair, ready func() bool, server, clients []string) (s sample, err error) {
	ended := make(chan error, 1)
	cmd := pinned(&p.B, serverCPU, server)
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		return s, err
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
	return s, err
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
