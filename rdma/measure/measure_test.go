package measure

import (
	"bufio"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// golden is a case of testdata: the numbers of the line "case", the lists of points in time, and
// the row that the code of perftest 4.5-0.17 prints of them at 1000 ticks a microsecond.
type golden struct {
	args  []uint64
	lists map[string][]uint64
	row   string
}

func readGolden(t *testing.T, name string) (all []golden) {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	testenv.Must(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	var g golden
	for lines.Scan() {
		key, rest, _ := strings.Cut(lines.Text(), " ")
		switch key {
		case "case":
			g = golden{args: numbers(t, rest), lists: map[string][]uint64{}}
		case "row":
			g.row = rest
			all = append(all, g)
		default:
			g.lists[key] = numbers(t, rest)
		}
	}
	if err := lines.Err(); err != nil || len(all) == 0 {
		t.Fatalf("%s: %d cases, %v", name, len(all), err)
	}
	return all
}

func numbers(t *testing.T, text string) (list []uint64) {
	t.Helper()
	for _, field := range strings.Fields(text) {
		n, err := strconv.ParseUint(field, 10, 64)
		testenv.Must(t, err)
		list = append(list, n)
	}
	return list
}

func TestLatencyRows(t *testing.T) {
	for _, g := range readGolden(t, "latency.txt") {
		l, err := NewLatency(g.args[1], Way(g.args[0]), g.lists["posted"])
		if err != nil {
			t.Error(err)
		} else if l.Row() != g.row {
			t.Errorf("%d messages:\n%q\n%q is perftest's", l.Iterations, l.Row(), g.row)
		}
	}
}

func TestBandwidthRows(t *testing.T) {
	for _, g := range readGolden(t, "bandwidth.txt") {
		size, n, moderation, gigabits, unpeaked := g.args[0], g.args[1], g.args[2], g.args[3] == 1, g.args[4] == 1
		unit := MB
		if gigabits {
			unit = Gb
		}
		posted, completed := g.lists["posted"], g.lists["completed"]
		b, err := Transfer{Bytes: size, Unit: unit, Posted: posted, Completed: completed, Moderation: int(moderation)}.Bandwidth()
		if unpeaked {
			b, err = span(size, n, unit, posted[0], completed[0])
		}
		if err != nil {
			t.Error(err)
		} else if b.Row() != g.row {
			t.Errorf("%d messages of %d:\n%q\n%q is perftest's", n, size, b.Row(), g.row)
		}
	}
}

func TestNoPeakBeyondTheLimit(t *testing.T) {
	posted, completed := make([]uint64, peakLimit+1), make([]uint64, peakLimit+1)
	for i := range posted {
		posted[i], completed[i] = uint64(i)*1000, uint64(i)*1000+500
	}
	b, err := Transfer{Bytes: 1, Unit: MB, Posted: posted, Completed: completed}.Bandwidth()
	if err != nil || b.Peak != 0 || b.Average == 0 {
		t.Errorf("%+v, %v", b, err)
	}
}

func TestRefused(t *testing.T) {
	if _, err := NewLatency(1, OneWay, make([]uint64, minPosted-1)); err == nil {
		t.Error("three messages have a latency")
	}
	if _, err := NewLatency(1, OneWay, []uint64{1, 3, 2, 4}); err == nil || !strings.Contains(err.Error(), "message 2 was posted before message 1") {
		t.Errorf("a clock that goes back: %v", err)
	}
	if _, err := (Transfer{Posted: []uint64{1}}).Bandwidth(); err == nil {
		t.Error("a transfer without completions has a bandwidth")
	}
	if _, err := span(1, 1, MB, 5, 5); err == nil {
		t.Error("no time has a bandwidth")
	}
}

// TestDeviation: perftest's deviation is cut to whole microseconds, the standard deviation is not.
func TestDeviation(t *testing.T) {
	l, err := NewLatency(2, RoundTrip, []uint64{0, 1000, 3000, 5000, 7000})
	if err != nil || l.Stdev != 0 || l.Deviation != 0.5 {
		t.Errorf("%+v, %v", l, err)
	}
}

func TestBoth(t *testing.T) {
	b := Bandwidth{Bytes: 2, Iterations: 3, Peak: 1, Average: 2, Rate: 3}.Both(Bandwidth{Peak: 10, Average: 20, Rate: 30})
	if b != (Bandwidth{Bytes: 2, Iterations: 3, Peak: 11, Average: 22, Rate: 33}) {
		t.Errorf("%+v", b)
	}
}

func TestJSON(t *testing.T) {
	l, err := NewLatency(2, OneWay, []uint64{0, 2000, 6000, 12000, 20000})
	testenv.Must(t, err)
	text, err := json.Marshal(l)
	want := `{"bytes":2,"iterations":5,"measured":"one way","t_min_usec":1,"t_max_usec":3,"t_typical_usec":1.5,"t_avg_usec":1.5,` +
		`"t_stdev_usec":0,"standard_deviation_usec":0.5,"percentile_99_usec":3,"percentile_99_9_usec":3}`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
	text, err = json.Marshal(Bandwidth{Bytes: 1, Iterations: 2, Unit: Gb, Peak: 3, Average: 4, Rate: 5})
	if err != nil || string(text) != `{"bytes":1,"iterations":2,"unit":"Gb/sec","bw_peak":3,"bw_average":4,"msg_rate_mpps":5}` {
		t.Errorf("%s, %v", text, err)
	}
}
