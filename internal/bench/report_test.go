package bench

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func example() *Report {
	r := NewReport("block I/O", "unified-nvme-test", "fio-3.33")
	r.Notes = []string{"Both on CPU 1."}
	r.Comparisons = []Comparison{
		{Case: "zram, random read of 4 KiB, depth 1", Metric: "I/O per second", Unit: "kIOPS", Better: More, Bar: 0.95,
			Pairs: []Pair{{402, 401}, {396, 399}, {410, 402}, {390, 395}, {401, 400}}},
		{Case: "zram, random read of 4 KiB, depth 1", Metric: "CPU per I/O", Unit: "µs", Better: Less, Bar: 1.05,
			Pairs: []Pair{{2.6, 2.3}, {2.5, 2.3}, {2.7, 2.2}, {2.4, 2.3}, {2.5, 2.4}}},
		{Case: "<file> & co", Metric: "no bar", Unit: "s", Better: Less, Pairs: []Pair{{1, 2}}},
	}
	return r
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	r := example()
	r.NoteLoad("now")
	if err := r.Table(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"401 kIOPS", "low ≥ 0.95: met", "high ≤ 1.05: missed", "0.500", "Both on CPU 1.", "Load average now: "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if example().Met() {
		t.Error("a missed bar passed")
	}
}

func TestSave(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "dir")
	if err := example().Save(dir, "block"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "block.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Met         bool
		Comparisons []struct {
			Case  string
			Pairs []Pair
			Ratio float64
			Low   *float64
			Met   bool
		}
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if c := got.Comparisons; got.Met || len(c) != 3 || !c[0].Met || c[1].Met || *c[0].Low < 0.95 || c[2].Low != nil || len(c[0].Pairs) != 5 {
		t.Errorf("%+v", got)
	}
	plot, err := os.ReadFile(filepath.Join(dir, "block.svg"))
	if err != nil {
		t.Fatal(err)
	}
	checkXML(t, plot, 11)
}

// checkXML reads the plot to its end and counts the dots.
func checkXML(t *testing.T, plot []byte, dots int) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(plot))
	found := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "circle" {
			found++
		}
	}
	if found != dots {
		t.Errorf("%d dots, want %d", found, dots)
	}
}

// TestRound: each round starts with another program, and ends at the first error.
func TestRound(t *testing.T) {
	order := ""
	add := func(s string) func() error { return func() error { order += s; return nil } }
	rounds := func(n int, programs ...func() error) string {
		t.Helper()
		order = ""
		for i := range n {
			if err := Round(i, programs...); err != nil {
				t.Fatal(err)
			}
		}
		return order
	}
	if got := rounds(3, add("a"), add("b")); got != "abbaab" {
		t.Error(got)
	}
	if got := rounds(4, add("a"), add("b"), add("c")); got != "abcbcacababc" {
		t.Error(got)
	}
	order = ""
	stop := errors.New("stop")
	if err := Round(0, add("a"), func() error { return stop }, add("c")); !errors.Is(err, stop) || order != "a" {
		t.Errorf("%v, after %q", err, order)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.01234: "0.0123", 1.2345: "1.23", 12.345: "12.3", 123.45: "123", 12345: "12345"} {
		if got := number(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}
