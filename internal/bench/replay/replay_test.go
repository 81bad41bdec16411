package replay

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/unifiedd/unifiedd/internal/bench"
	"github.com/unifiedd/unifiedd/internal/bench/contest"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// expected is roughly how many packets per second both send. It determines the number of rounds through the
// capture.
const expected = 400_000

// TestAgainstTcpreplay compares in the form that UNIFIEDD_BENCH names and leaves table, JSON and plot in build/bench.
func TestAgainstTcpreplay(t *testing.T) {
	testenv.Root(t)
	form, err := bench.WantedForm()
	if err != nil {
		t.Fatal(err)
	}
	testenv.HugePages(t, 260<<20)
	pair := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	programs := [2]program{ours(t), theirs(t)}
	r := bench.NewReport("sending captures", "unifiedd replay", "tcpreplay")
	r.Notes = []string{
		fmt.Sprintf("%d pairs of runs of about %v each, in turn, on one CPU, at top speed, over veth in copy mode; %s form.", form.Rounds, form.Span, form.Name),
		"Processor time is the whole process's, its start included. tcpreplay has the capture in memory before it begins; ours reads it from the disk each time."}
	r.NoteLoad("before")
	for _, size := range []int{64, 512, 1500} {
		file := writeCapture(t, pair, size)
		loops := max(1, int(form.Span.Seconds()*expected)/packets)
		send := func(p program) contest.Run[outcome] {
			return func(context.Context) (outcome, error) { return p.send(t, pair, file, loops, packets*loops) }
		}
		c := contest.Contest[outcome]{Name: fmt.Sprintf("packets of %d bytes", size), Programs: []contest.Run[outcome]{send(programs[0]), send(programs[1])},
			Measures: []contest.Measure[outcome]{
				{Metric: "rate", Unit: "packets/s", Better: bench.More, Theirs: 1, Of: func(o outcome) float64 { return o.rate }},
				{Metric: "processor", Unit: "ns/packet", Better: bench.Less, Theirs: 1, Of: func(o outcome) float64 { return o.cost }},
			}}
		if err := c.Rounds(t.Context(), form.Rounds); err != nil {
			t.Fatal(err)
		}
		r.Comparisons = append(r.Comparisons, c.Comparisons()...)
	}
	r.NoteLoad("at the end")
	if err := r.Finish(os.Stdout, form, t.TempDir(), "replay"); err != nil {
		t.Error(err)
	}
}

// packets is how many packets a capture has.
const packets = 50_000

// writeCapture writes a capture with packets of one size.
func writeCapture(t *testing.T, pair *testenv.Pair, size int) (file string) {
	t.Helper()
	var out bytes.Buffer
	w := pcapgo.NewWriterNanos(&out)
	if err := w.WriteFileHeader(65535, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	for i, f := range testenv.Stream(&pair.A, &pair.B, 9, 0, packets, size) {
		if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(1, int64(i)*1000), CaptureLength: len(f), Length: len(f)}, f); err != nil {
			t.Fatal(err)
		}
	}
	file = filepath.Join(testenv.DiskDir(t), "in.pcap")
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// outcome is the result of a run.
type outcome struct {
	rate float64 // packets a second
	cost float64 // nanoseconds of processors' time for a packet
}

// program is how to run one of the senders, and how to parse its output.
type program struct {
	args []string
	said *regexp.Regexp // packets, and seconds
}

func ours(t *testing.T) program {
	t.Helper()
	return program{[]string{testenv.Build(t, "cmd/unifiedd"), "replay", "-q", "--topspeed"}, regexp.MustCompile(`(\d+) packets sent, .* in ([0-9.]+) s`)}
}

func theirs(t *testing.T) program {
	t.Helper()
	return program{[]string{testenv.Tool(t, "tcpreplay"), "-q", "--topspeed", "--preload-pcap"}, regexp.MustCompile(`Actual: (\d+) packets .* in ([0-9.]+) seconds`)}
}

// send runs a program and parses its standard output and standard error.
func (p program) send(t *testing.T, pair *testenv.Pair, file string, loops, want int) (o outcome, err error) {
	args := append([]string{"netns", "exec", pair.A.Namespace.Name, "sh", "-c", `exec "$@" 2>&1`, "sh"}, p.args...)
	out, used, err := bench.Run(t.Context(), 0, "ip", append(args, "--loop", strconv.Itoa(loops), "-i", pair.A.Ifname, file)...)
	if err != nil {
		return o, fmt.Errorf("%w\n%s", err, out)
	}
	m := p.said.FindSubmatch(out)
	if m == nil {
		return o, fmt.Errorf("%s does not say how many it sent:\n%s", p.args[0], out)
	}
	sent, _ := strconv.ParseFloat(string(m[1]), 64)
	seconds, _ := strconv.ParseFloat(string(m[2]), 64)
	if int(sent) != want || seconds == 0 {
		return o, fmt.Errorf("%s sent %v packets of %d in %v s:\n%s", p.args[0], sent, want, seconds, out)
	}
	return outcome{sent / seconds, float64(used.CPU()) / sent}, nil
}
