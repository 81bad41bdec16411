package capture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/unifiedd/unifiedd/internal/bench"
	benchcontest "github.com/unifiedd/unifiedd/internal/bench/contest"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// bed is the machinery of a comparison: programs, a veth pair, a disk, and a meter of idle time.
type bed struct {
	*testing.T
	form   bench.Form
	cases  *regexp.Regexp
	pair   *testenv.Pair
	dir    string // on a disk
	daemon string // paths of programs
	sender string
	told   []string // options of the sender, besides those that all beds give it
	idle   meter
	bars   bars
	settle time.Duration // how long all wait at least, when the last packet is sent
}

// newBed returns a bed on a veth pair, with a soaker.
func newBed(t *testing.T) *bed {
	t.Helper()
	testenv.Root(t)
	b := plainBed(t)
	if b.form != bench.Short {
		b.must(separate(t))
	}
	testenv.HugePages(t, 2*(b.region()+16<<20)) // the kernel has those of one daemon for a while after its end
	b.dir, b.daemon, b.sender, b.bars = testenv.DiskDir(t), testenv.Build(t, "cmd/unifiedd"), testenv.Build(t, "selftests/unified-xdp-test"), takenBars
	b.pair = testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	s, err := startSoaker(testenv.Compile(t, "../../../selftests/peers/soaker/soaker.c", "-pthread"), runtime.NumCPU())
	b.must(err)
	t.Cleanup(func() { b.must(s.close()) })
	b.idle = s
	return b
}

// separate turns off that the scheduler shares CPUs between sessions (sched_autogroup_enabled) until the
// test ends. With it, the soaker yields only to threads of its own session, and not to kernel threads. Those
// of the disk then waited for up to 17 s, and no write was completed.
func separate(t *testing.T) error {
	const file = "/proc/sys/kernel/sched_autogroup_enabled"
	was, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil // a kernel without such groups
	}
	if err != nil {
		return err
	}
	t.Cleanup(func() {
		if err := os.WriteFile(file, was, 0); err != nil {
			t.Error(err)
		}
	})
	return os.WriteFile(file, []byte("0"), 0)
}

// plainBed returns a bed with its options, and no machinery yet.
func plainBed(t *testing.T) *bed {
	t.Helper()
	form, err := bench.WantedForm()
	if err != nil {
		t.Fatal(err)
	}
	cases, err := bench.WantedCases()
	if err != nil {
		t.Fatal(err)
	}
	if runtime.NumCPU() < 2 {
		t.Fatal("sender and receiver need a CPU each")
	}
	return &bed{T: t, form: form, cases: cases}
}

// region is the size of our region. The default of region.size is enough for the short form.
func (b *bed) region() uint64 {
	if b.form == bench.Short {
		return 256 << 20
	}
	return 1 << 30
}

// advised is ours with the sleep that docs/layouts.md recommends for a worker that only captures. Half of the
// region is extents.
func (b *bed) advised() contestant {
	region := b.region()
	return ours("unifiedd", b.daemon, "", "", fmt.Sprintf("workers: [{name: main, sleep: 1ms}]\nregion: {size: %dMiB, extents: %d}", region>>20, region>>21))
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// span is how long packets are sent to each contestant.
func (b *bed) span() time.Duration {
	switch b.form.Name {
	case bench.Short.Name:
		return 300 * time.Millisecond
	case bench.Long.Name:
		return 20 * time.Second
	}
	return 4 * time.Second
}

// rounds is at most five, unless another number is requested.
func (b *bed) rounds() int {
	if os.Getenv(bench.RoundsVariable) != "" {
		return b.form.Rounds
	}
	return min(b.form.Rounds, 5)
}

// wanted returns ours, and the other contestants that are requested for this work.
func (b *bed) wanted(w work, all []contestant) (some []contestant) {
	some = all[:1:1]
	for _, c := range all[1:] {
		if b.cases.MatchString(w.String() + ": " + c.name) {
			some = append(some, c)
		}
	}
	return some
}

// compete runs the contestants alternately, round after round; ours is the first. It adds the result to the
// report.
func (b *bed) compete(r *bench.Report, w work, all []contestant) {
	b.Helper()
	if c := b.contest(w, all); c != nil {
		c.addTo(r)
	}
}

// contest runs the contestants. It returns nil if none but ours is requested for this work.
func (b *bed) contest(w work, all []contestant) *contest {
	b.Helper()
	all = b.wanted(w, all)
	if len(all) == 1 {
		return nil
	}
	if b.form != bench.Short {
		b.settle = longestSettle(all)
	}
	var names []string
	for _, one := range all {
		names = append(names, one.name)
	}
	c := newContest(w, b.bars, names)
	for i := range b.rounds() {
		b.round(c, i, all)
	}
	return c
}

// engines are both of ours and the others. The packet socket is the first, AF_XDP sockets are the last.
func (b *bed) engines() []contestant {
	memory := stenoBlocks
	if b.form == bench.Short {
		memory = 64
	}
	taken := b.advised()
	taken.name = withXDP
	return append(append([]contestant{passive(b.daemon, memory)}, b.others()...), taken)
}

// withXDP is the name of ours with AF_XDP sockets beside ours with a packet socket.
const withXDP = "unifiedd with engine: xdp"

// round sends the packets to a program that drops them, to each contestant, and to that program again; each
// round starts one turn later than the round before it. The average cost of the program's two runs is the cost
// of sending.
func (b *bed) round(c *contest, i int, all []contestant) {
	b.Helper()
	rest := b.rest()
	drop := func(context.Context) (sample, error) { return b.drop(c.work, rest) }
	c.Programs = []benchcontest.Run[sample]{drop}
	for _, one := range all {
		c.Programs = append(c.Programs, func(context.Context) (sample, error) { return b.measure(one, c.work, rest) })
	}
	c.Programs = append(c.Programs, drop)
	b.must(c.Round(b.Context(), i))
	runs, first, last := c.Samples[i][1:len(all)+1], c.Samples[i][0], c.Samples[i][len(all)+1]
	sending := (first.cost + last.cost) / 2
	for k := range runs {
		runs[k].cost -= sending
	}
	c.Samples[i] = runs
}

// rest returns the share of the processors that is busy while no measurement runs.
func (b *bed) rest() float64 {
	b.Helper()
	var share float64
	_, err := b.watch(func() error { time.Sleep(min(b.span(), time.Second)); return nil }, func(busy, wall time.Duration) { share = float64(busy) / float64(wall) })
	b.must(err)
	return share
}

// watch calls tell with how long the processors were busy while f ran. It returns the share of their time
// that the host took.
func (b *bed) watch(f func() error, tell func(busy, wall time.Duration)) (stolen float64, err error) {
	before, err := b.idle.read()
	if err != nil {
		return 0, err
	}
	was := bench.Stolen()
	if err := f(); err != nil {
		return 0, err
	}
	after, err := b.idle.read()
	spent, wall := busy(before, after, runtime.NumCPU())
	tell(spent, wall)
	return float64(bench.Stolen()-was) / float64(wall) / float64(runtime.NumCPU()), err
}

// drop sends packets to an XDP program that drops them. Its cost is that of sending.
func (b *bed) drop(w work, rest float64) (s sample, err error) {
	b.pair.B.AwaitNoProgram(b.T)
	defer b.attachDrop().Close()
	s.stolen, err = b.watch(func() (err error) {
		s.sent, err = b.send(w)
		time.Sleep(max(b.settle, settles))
		return err
	}, s.charge(rest))
	return s, err
}

// charge returns a function that sets the cost: the time for which the processors were busy, less
// the rest.
func (s *sample) charge(rest float64) func(busy, wall time.Duration) {
	return func(busy, wall time.Duration) { s.cost = busy - time.Duration(rest*float64(wall)) }
}

// begin starts a contestant in a directory of its own. The caller ends it and removes the directory.
func (b *bed) begin(c contestant) (r *receiver, err error) {
	b.pair.B.AwaitNoProgram(b.T)
	dir, err := os.MkdirTemp(b.dir, "run-")
	if err != nil {
		return nil, err
	}
	if r, err = launch(c, b.pair.B.Ifname, dir, b.pinned(&b.pair.B, receiverCPU)); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return r, nil
}

// measure sends the packets to one contestant, and counts those in its files.
func (b *bed) measure(c contestant, w work, rest float64) (s sample, err error) {
	r, err := b.begin(c)
	if err != nil {
		return s, err
	}
	defer os.RemoveAll(r.dir)
	s.stolen, err = b.watch(func() (err error) {
		if s.sent, err = b.send(w); err == nil {
			time.Sleep(max(b.settle, c.settle))
		}
		return errors.Join(err, r.end())
	}, s.charge(rest))
	if err != nil {
		return s, err
	}
	found, err := r.found(s.sent)
	if err == nil {
		err = found.sound()
	}
	if s.lost, s.onDisk = s.sent-int(found.numbers), found.bytes; s.lost > 0 {
		b.Logf("%v: %s lost %d of %d; it says:\n%s", w, c.name, s.lost, s.sent, &r.said)
	}
	return s, err
}

// send sends packets for the form's span, and returns how many.
func (b *bed) send(w work) (int, error) {
	count := int(b.span().Seconds() * float64(w.rate))
	_, err := b.sendCount(w, count)
	return count, err
}

// sendCount sends a number of packets, and returns how long that took.
func (b *bed) sendCount(w work, count int) (time.Duration, error) {
	var said struct {
		Seconds float64 `json:"seconds"`
	}
	b.pair.Carry(b.T)
	args := append(slices.Clone(b.told), "-tx", "-json", "-pages", "ordinary", "-wait", "sleep", "-sleep", "50us", "-ring", "1024", "-rate", strconv.Itoa(w.rate),
		"-size", strconv.Itoa(w.size), "-count", strconv.Itoa(count), b.pair.A.Ifname)
	out, err := b.pinned(&b.pair.A, senderCPU)(b.sender, args...).Output()
	if err == nil {
		err = json.Unmarshal(out, &said)
	}
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		out = failed.Stderr
	}
	if err != nil {
		return 0, fmt.Errorf("sender: %w\n%s", err, out)
	}
	return time.Duration(said.Seconds * float64(time.Second)), nil
}

// pinned returns what makes commands of an end that run on one CPU.
func (b *bed) pinned(e *testenv.End, cpu int) func(name string, args ...string) *exec.Cmd {
	return func(name string, args ...string) *exec.Cmd {
		return e.Command("taskset", append([]string{"-c", strconv.Itoa(cpu), name}, args...)...)
	}
}

// attachDrop attaches an XDP program that drops the packets that reach end B.
func (b *bed) attachDrop() (l link.Link) {
	b.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "drop", Type: ebpf.XDP, License: "Dual MIT/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}}) // XDP_DROP
	b.must(err)
	defer p.Close()
	b.pair.B.Do(b.T, func() {
		l, err = link.AttachXDP(link.XDPOptions{Program: p, Interface: b.pair.B.Index, Flags: link.XDPDriverMode})
	})
	b.must(err)
	return l
}

// others are the programs that unifiedd is compared with.
func (b *bed) others() []contestant {
	return []contestant{b.stenotype(stenoBlocks), netsniff(testenv.Tool(b, "netsniff-ng")), dumpcap(testenv.Tool(b, "dumpcap")), tcpdump(testenv.Tool(b, "tcpdump"))}
}

// stenotype is the stenotype that make setup-test unpacks.
func (b *bed) stenotype(blocks int) contestant {
	root, err := filepath.Abs("../../../build/unpacked")
	b.must(err)
	program := filepath.Join(root, "usr", "sbin", "stenotype")
	libraries, err := filepath.Glob(filepath.Join(root, "usr", "lib", "*", "libleveldb.so.1d"))
	b.must(err)
	if _, err := os.Stat(program); err != nil || len(libraries) == 0 {
		b.Fatalf("stenotype is not there: %v (unpack it: make setup-test)", err)
	}
	return stenotype(program, filepath.Dir(libraries[0]), blocks)
}
