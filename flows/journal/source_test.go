package journal

import (
	"bytes"
	"testing"

	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestForms: the head of a run records whether its records have owners or epochs. The parser reads
// that from an intact head and from a damaged one.
func TestForms(t *testing.T) {
	for f := range forms {
		want := origin{start: 7, run: 0xabc, form: form(f)}
		s := want.form.of(Source("wal", want.start, want.run, 100), want.start, want.run)
		var o origin
		if !o.parse(s.Description) || o != want {
			t.Errorf("%q is %+v", s.Description, o)
		}
		head, err := pcapng.AppendSegmentHead(nil, pcapng.Section{}, []pcapng.Interface{s}, pcapng.Segment{Align: 512})
		testenv.Must(t, err)
		head[4] ^= 1
		if got, ok := originIn(bytes.NewReader(head)); !ok || got != want {
			t.Errorf("of %q is left %+v, %v", s.Description, got, ok)
		}
		if o.parse(s.Description + " or so") {
			t.Errorf("%q and more is read", s.Description)
		}
	}
}
