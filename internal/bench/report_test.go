package bench

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
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

func TestAlternate(t *testing.T) {
	var order []string
	add := func(s string) func() error { return func() error { order = append(order, s); return nil } }
	if err := alternate(3, add("a"), add("b")); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(order, []string{"a", "b", "b", "a", "a", "b"}) {
		t.Error(order)
	}
	order = nil
	for i := range 4 {
		if err := Round(i, add("a"), add("b"), add("c")); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(order, ""); got != "abcbcacababc" {
		t.Error(got)
	}
	stop := errors.New("stop")
	if err := alternate(3, add("a"), func() error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.01234: "0.0123", 1.2345: "1.23", 12.345: "12.3", 123.45: "123", 12345: "12345"} {
		if got := number(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}
