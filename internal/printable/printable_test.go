package printable

import (
	"reflect"
	"strings"
	"testing"
)

// TestTexts: what can be printed stays as it is. Escape sequences, line feeds, bytes that are no UTF-8, and characters
// that change the direction of a text, are quoted or removed.
func TestTexts(t *testing.T) {
	for _, good := range []string{"", "eth0", "näme with \"spaces\"", "я.img", `back\slash`} {
		if Text(good) != good || Lines(good) != good || Only(good, 100) != good {
			t.Errorf("%q became %q, %q, %q", good, Text(good), Lines(good), Only(good, 100))
		}
	}
	for _, bad := range []string{"x\x1b]0;owned\a", "a\nb", "a\tb", "\x7f", "\u009b2J", "\u202e", "\xff\xfe", "a\x00b", "\r"} {
		got := Text(bad)
		if got == bad || strings.IndexFunc(got, func(r rune) bool { return r < ' ' || r > '~' }) >= 0 {
			t.Errorf("%q is printed as %q", bad, got)
		}
		if only := Only(bad, 100); Text(only) != only {
			t.Errorf("%q is printed as %q", bad, only)
		}
	}
	if got := Lines("one\n\ttwo\nthree\x1b[2J\n"); got != "one\n\ttwo\n"+`"three\x1b[2J"`+"\n" {
		t.Errorf("%q", got)
	}
	if got := Only("abcdef", 3); got != "abc" {
		t.Errorf("%q", got)
	}
}

// TestDocument: all strings of a document are looked at, also keys of maps.
func TestDocument(t *testing.T) {
	type part struct {
		Name  string
		Error string
		Count map[string]uint64
		Named map[string][]string
		Next  *part
		List  []part
		Any   any
	}
	d := part{Name: "a\nb", Error: "one\ntwo\x1b", Count: map[string]uint64{"x\a": 1, "y": 2}, Named: map[string][]string{"k": {"v\x1b"}}, Next: &part{Name: "\x1b"}, List: []part{{Name: "ok"}, {Name: "\b"}}}
	Document(&d)
	want := part{Name: `"a\nb"`, Error: "one\n" + `"two\x1b"`, Count: map[string]uint64{`"x\a"`: 1, "y": 2}, Named: map[string][]string{"k": {`"v\x1b"`}}, Next: &part{Name: `"\x1b"`},
		List: []part{{Name: "ok"}, {Name: `"\b"`}}}
	if !reflect.DeepEqual(d, want) {
		t.Errorf("%+v, %+v", d, d.Next)
	}
}
