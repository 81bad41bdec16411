package network

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/bench/contest"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

const (
	ringSize  = 4096
	frameSize = 4096
)

// bed is the machinery of the comparison: programs and a veth pair.
type bed struct {
	*testing.T
	pair         *testenv.Pair
	ours, theirs string // paths of programs
}

// TestAgainstLibxdp compares in the form that UNIFIEDD_BENCH names and leaves table, JSON and plot
// in build/bench. The table shows a missed bar; the test does not fail, since on a busy machine the
// cause may be other load.
func TestAgainstLibxdp(t *testing.T) {
	testenv.Root(t)
	form, err := bench.WantedForm()
	if err != nil {
		t.Fatal(err)
	}
	if runtime.NumCPU() < 2 {
		t.Fatal("sender and receiver need a CPU each")
	}
	testenv.HugePages(t, 3*ringSize*frameSize)
	b := &bed{T: t, ours: testenv.Build(t, "selftests/unified-xdp-test"), theirs: testenv.Compile(t, "../../../selftests/peers/xsk-peer/xsk-peer.c", "-lxdp", "-lbpf")}
	b.pair = testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	rounds := 2 * form.Rounds // the cost of a wake-up varies, so many pairs are better than long ones
	w := work{rate: 100000, size: 1024}
	receive := func(k int) contest.Run[run] {
		return func(context.Context) (run, error) { return b.measure(k, w, form.Span) }
	}
	c := newContest(w, receive(0), receive(1))
	if err := c.Rounds(t.Context(), rounds); err != nil {
		t.Fatal(err)
	}
	r := bench.NewReport("AF_XDP receive", "unified-xdp-test", "xsk-peer (libxdp "+libxdpVersion(t)+")")
	r.Comparisons = c.Comparisons()
	r.Notes = []string{
		fmt.Sprintf("%d pairs of runs of %v each, in turn, receiver on CPU 0, sender on CPU 1, over veth in copy mode; %s form.", rounds, form.Span, form.Name),
		"Processor time is that of all threads of the receiving process, from schedstat.",
		"The whole machine's time is counted by ticks, the sender's and everybody else's included.",
		losses(c)}
	if err := r.Finish(b.Output(), form, b.TempDir(), "network"); err != nil {
		b.Error(err)
	}
}

// measure runs one receiver under the sender's traffic. With real-time priority, other load does
// not influence how many packets a wake-up finds.
func (b *bed) measure(k int, w work, span time.Duration) (run, error) {
	pinned := func(e *testenv.End, cpu int, name string, args ...string) *exec.Cmd {
		return e.Command("taskset", append([]string{"-c", strconv.Itoa(cpu), "chrt", "--fifo", "10", name}, args...)...)
	}
	far := &b.pair.B
	args := [2][]string{
		{"-rx", "-wait", "poll", "-zero-copy", "copy", "-json", "-ring", strconv.Itoa(ringSize), "-frame", strconv.Itoa(frameSize), far.Ifname},
		{far.Ifname, "0", strconv.Itoa(ringSize), strconv.Itoa(frameSize)},
	}
	r, err := launch(pinned(far, 0, [2]string{b.ours, b.theirs}[k], args[k]...))
	if err != nil {
		return run{}, err
	}
	packets := int(span.Seconds() * float64(w.rate))
	cpu, machine, err := r.observe(func() error {
		out, err := pinned(&b.pair.A, 1, b.ours, "-tx", "-wait", "sleep", "-sleep", "50us", "-ring", "1024", "-rate", strconv.Itoa(w.rate),
			"-size", strconv.Itoa(w.size), "-count", strconv.Itoa(packets), b.pair.A.Ifname).CombinedOutput()
		if err != nil {
			return fmt.Errorf("sender: %w\n%s", err, out)
		}
		return nil
	})
	done, endErr := r.end()
	if err == nil {
		err = endErr
	}
	if err == nil && int(done.packets+done.lost) != packets {
		err = fmt.Errorf("%d packets were sent, %s has received %.0f and lost %.0f", packets, r.cmd, done.packets, done.lost)
	}
	done.cpu, done.machine = cpu, machine
	return done, err
}

func libxdpVersion(t *testing.T) string {
	t.Helper()
	out, err := exec.Command(testenv.Tool(t, "pkg-config"), "--modversion", "libxdp").Output()
	if err != nil {
		t.Fatalf("ask for the version of libxdp: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// TestProcessTime: processTime finds the processor time that the test burns.
func TestProcessTime(t *testing.T) {
	a, err := processTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
	}
	b, err := processTime(os.Getpid())
	if err != nil || b <= a {
		t.Errorf("%v, then %v, %v", a, b, err)
	}
	if _, err := processTime(-1); err == nil {
		t.Error("no process, and a time")
	}
	if busy, err := busyTime(); err != nil || busy <= 0 {
		t.Errorf("the machine was busy for %v, %v", busy, err)
	}
}
