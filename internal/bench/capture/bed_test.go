package capture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// bed is the machinery of a comparison: programs, a veth pair, a disk, and a meter of idle time.
type bed struct {
	*bench.Report
	pair   *testenv.Pair
	dir    string // on a disk
	daemon string // paths of programs
	sender string
	idle   *soaker
	span   time.Duration // how long packets are sent to each contestant
	settle time.Duration // how long all wait at least, when the last packet is sent
}

// region is the size of our region.
const region = 1 << 30

// newBed returns a bed on a veth pair, with a soaker. There are at most five rounds, unless another number is requested.
func newBed(r *bench.Report) *bed {
	r.Helper()
	r.Form = r.Form.AtMost(5)
	b := &bed{Report: r, span: 4 * r.Form.Span}
	if r.Form.Name == "long" {
		b.span *= 2 // 20 s
	}
	b.Must(separate(r.T))
	testenv.HugePages(r, 2*(region+16<<20)) // the kernel has those of one daemon for a while after its end
	b.dir, b.daemon, b.sender = testenv.DiskDir(r), testenv.Program(r, "cmd/unifiedd"), testenv.Program(r, "selftests/unified-xdp-test")
	b.pair = testenv.NewPair(r, testenv.PairOptions{NoAddresses: true})
	s, err := startSoaker(testenv.Compile(r, bench.Path(r, "selftests/peers/soaker/soaker.c"), "-pthread"), runtime.NumCPU())
	b.Must(err)
	r.Cleanup(func() { b.Must(s.close()) })
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
		testenv.Check(t, os.WriteFile(file, was, 0))
	})
	return os.WriteFile(file, []byte("0"), 0)
}

// advised is ours with the sleep that docs/how-to/tuning.md recommends for a worker that only captures. Half of the
// region is extents.
func (b *bed) advised() contestant {
	return ours("unifiedd", b.daemon, "", "", fmt.Sprintf("workers: [{name: main, sleep: 1ms}]\nregion: {size: %dMiB, extents: %d}", region>>20, region>>21))
}

// wanted returns ours, and the other contestants that are requested for this work.
func (b *bed) wanted(w work, all []contestant) (some []contestant) {
	some = all[:1:1]
	for _, c := range all[1:] {
		if b.Wants(w.String() + ": " + c.name) {
			some = append(some, c)
		}
	}
	return some
}

// contest runs the contestants. In each round it sends the packets to a program that drops them, to each contestant, and
// to that program again. The average cost of the program's two runs is the cost of sending, and the share of the processors
// that is busy while nothing runs counts for nobody. It returns nil if none but ours is requested for this work.
func (b *bed) contest(w work, of bars, all []contestant) *contest {
	b.Helper()
	all = b.wanted(w, all)
	if len(all) == 1 {
		return nil
	}
	b.settle = longestSettle(all)
	var names []string
	for _, one := range all {
		names = append(names, one.name)
	}
	c := newContest(w, of, names)
	rest := func(context.Context) (s sample, err error) {
		err = s.watch(b, func() error { time.Sleep(time.Second); return nil })
		return s, err
	}
	drop := func(context.Context) (sample, error) { return b.drop(w) }
	c.Programs = []bench.Run[sample]{rest, drop}
	for _, one := range all {
		c.Programs = append(c.Programs, func(context.Context) (sample, error) { return b.measure(one, w) })
	}
	c.Programs = append(c.Programs, drop)
	b.Must(c.Rounds(b.Context(), b.Form.Rounds))
	for i, round := range c.Samples {
		share, last := float64(round[0].cost)/float64(round[0].wall), len(round)-1
		for k := range round {
			round[k].cost -= time.Duration(share * float64(round[k].wall))
		}
		sending := (round[1].cost + round[last].cost) / 2
		c.Samples[i] = round[2:last]
		for k := range c.Samples[i] {
			c.Samples[i][k].cost -= sending
		}
	}
	return c
}

// engines are both of ours and the others. The packet socket is the first, AF_XDP sockets are the last.
func (b *bed) engines() []contestant {
	taken := b.advised()
	taken.name = withXDP
	return append(append([]contestant{passive(b.daemon, stenoBlocks)}, b.others()...), taken)
}

// withXDP is the name of ours with AF_XDP sockets beside ours with a packet socket.
const withXDP = "unifiedd with engine: xdp"

// watch sets what a run cost: for how long the processors were busy while f ran, and the share of their time that the host
// took.
func (s *sample) watch(b *bed, f func() error) error {
	before, err := b.idle.read()
	if err != nil {
		return err
	}
	was := bench.Stolen()
	if err := f(); err != nil {
		return err
	}
	after, err := b.idle.read()
	wall, cpus := after.wall-before.wall, runtime.NumCPU()
	s.cost, s.wall = time.Duration(cpus)*wall-(after.idle-before.idle), wall
	s.stolen = float64(bench.Stolen()-was) / float64(wall) / float64(cpus)
	return err
}

// drop sends packets to an XDP program that drops them. Its cost is that of sending.
func (b *bed) drop(w work) (s sample, err error) {
	b.pair.B.AwaitNoProgram(b.T)
	defer b.attachDrop().Close()
	err = s.watch(b, func() (err error) {
		s.sent, err = b.send(w)
		time.Sleep(max(b.settle, settles))
		return err
	})
	return s, err
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
func (b *bed) measure(c contestant, w work) (s sample, err error) {
	r, err := b.begin(c)
	if err != nil {
		return s, err
	}
	defer os.RemoveAll(r.dir)
	err = s.watch(b, func() (err error) {
		if s.sent, err = b.send(w); err == nil {
			time.Sleep(max(b.settle, c.settle))
		}
		return errors.Join(err, r.end())
	})
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
	count := int(b.span.Seconds() * float64(w.rate))
	_, err := b.sendCount(w, count)
	return count, err
}

// sendCount sends a number of packets, and returns how long that took.
func (b *bed) sendCount(w work, count int) (time.Duration, error) {
	var said struct {
		Seconds float64 `json:"seconds"`
	}
	b.pair.Carry(b.T)
	args := []string{"-tx", "-json", "-pages", "ordinary", "-wait", "sleep", "-sleep", "50us", "-ring", "1024", "-rate", strconv.Itoa(w.rate),
		"-size", strconv.Itoa(w.size), "-count", strconv.Itoa(count), b.pair.A.Ifname}
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
	b.Must(err)
	defer p.Close()
	b.pair.B.Do(b.T, func() {
		l, err = link.AttachXDP(link.XDPOptions{Program: p, Interface: b.pair.B.Index, Flags: link.XDPDriverMode})
	})
	b.Must(err)
	return l
}

// others are the programs that unifiedd is compared with.
func (b *bed) others() []contestant {
	return []contestant{b.stenotype(stenoBlocks), netsniff(testenv.Tool(b, "netsniff-ng")), dumpcap(testenv.Tool(b, "dumpcap")), tcpdump(testenv.Tool(b, "tcpdump"))}
}

// stenotype is the stenotype that scripts/setup.sh demo test unpacks.
func (b *bed) stenotype(blocks int) contestant {
	program, libraries := bench.Unpacked(b, "usr/sbin/stenotype")
	return stenotype(program, libraries, blocks)
}
