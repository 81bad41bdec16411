package bench

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/latency"
)

// TestTimes: a report shows the contents of its histograms in each form.
func TestTimes(t *testing.T) {
	var s latency.Shared
	for i := range uint64(1000) {
		s.Record(1000 + i*1000)
	}
	r := NewTimes("how long")
	if err := r.Add("a <case>", s.Distribution()); err != nil {
		t.Fatal(err)
	}
	if err := r.Add("nothing", new(latency.Shared).Distribution()); err == nil {
		t.Error("nothing is taken for a histogram")
	}
	var table, data, plot bytes.Buffer
	if err := errors.Join(r.Table(&table), r.JSON(&data), r.SVG(&plot)); err != nil {
		t.Fatal(err)
	}
	if text := table.String(); !strings.Contains(text, "a <case>") || !strings.Contains(text, "1000") {
		t.Errorf("the table is\n%s", text)
	}
	var back Times
	if err := json.Unmarshal(data.Bytes(), &back); err != nil || back.Lines[0].Times.Count != 1000 {
		t.Errorf("read back: %+v, %v", back, err)
	}
	bars := 0
	for d := xml.NewDecoder(&plot); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
			bars++
		}
	}
	if want := 1 + len(back.Lines[0].Times.Buckets); bars != want {
		t.Errorf("the plot has %d rectangles, want %d", bars, want)
	}
}
