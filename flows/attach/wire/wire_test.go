package wire

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestMessages: every message is parsed as it was made.
func TestMessages(t *testing.T) {
	for _, m := range []any{
		&Hello{"strategy", 7}, &Welcome{1, 2 << 20, 0, 4096}, &Refusal{Busy, "in use"}, &Open{"md", Receive, 64, 7}, &Opened{3, 128, 9, 1 << 40, 512, 1024},
		&Close{3}, &Mapped{4}, &Closed{3, Refusal{Closing, "the flow ends"}},
	} {
		b, err := Append(nil, m, false)
		testenv.Must(t, err)
		got, end, err := Parse(b)
		if err != nil || end || !reflect.DeepEqual(got, m) {
			t.Errorf("%+v is parsed as %+v, %t, %v", m, got, end, err)
		}
	}
	b, err := Append(nil, &Refusal{TooSlow, ""}, true)
	testenv.Must(t, err)
	if got, end, err := Parse(b); err != nil || !end || got.(*Refusal).Reason != TooSlow {
		t.Errorf("an end is parsed as %+v, %t, %v", got, end, err)
	}
	if _, err := Append(nil, &Hello{strings.Repeat("x", 64), 1}, false); err == nil {
		t.Error("a name of 64 bytes is sent")
	}
	b[4] = 9
	if _, _, err := Parse(b); !errors.Is(err, BadVersion) {
		t.Errorf("another version: %v", err)
	}
}

// FuzzParse: bytes never make Parse panic, and what it accepts is made the same again.
func FuzzParse(f *testing.F) {
	for _, m := range []any{&Hello{"a", 1}, &Open{"md", Send, 1, 9}, &Closed{1, Refusal{Gone, "x"}}} {
		b, err := Append(nil, m, false)
		testenv.Must(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, end, err := Parse(b)
		if err != nil {
			return
		}
		again, err := Append(nil, m, end)
		if err != nil {
			t.Fatalf("%+v: %v", m, err)
		}
		if n, _, err := Parse(again); err != nil || !reflect.DeepEqual(m, n) {
			t.Errorf("%+v becomes %+v: %v", m, n, err)
		}
	})
}
