package dispatcher

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestFormat: the value of the map has 124 bytes, and its fields are where libxdp puts them.
func TestFormat(t *testing.T) {
	f := newFormat([]*member{
		{Settings: Settings{Priority: 10, Actions: 1 << 2, Fragments: true}},
		{Settings: Settings{Priority: 50, Actions: 1<<1 | 1<<2}},
	})
	value, err := f.bytes()
	if err != nil || len(value) != 124 || !slices.Equal(value[:4], []byte{236, 2, 2, 0}) {
		t.Fatalf("%d bytes, beginning with %v: %v", len(value), value[:4], err)
	}
	got, err := parse(value)
	if err != nil || *got != *f {
		t.Errorf("read again: %+v, %v", got, err)
	}
	if first, want := got.settings(0), (Settings{10, 1 << 2, true}); first != want {
		t.Errorf("%+v, want %+v", first, want)
	}
	f = newFormat([]*member{{Settings: Settings{Fragments: true}}})
	if f.Fragments != 1 || f.Actions[0] != 1<<31 {
		t.Errorf("all take packets of several buffers: %+v", f)
	}
}

// TestFormatRefused: the error for a map of another version names the version and a remedy.
func TestFormatRefused(t *testing.T) {
	value, err := newFormat(nil).bytes()
	testenv.Must(t, err)
	for want, change := range map[string]func([]byte) []byte{
		"before 2":         func(b []byte) []byte { b[0] = 3; return b },
		"version: 3":       func(b []byte) []byte { b[1] = 3; return b },
		"not that of vers": func(b []byte) []byte { return b[:120] },
		"not that of ver":  func(b []byte) []byte { return append(b, 0) },
		"not that of ve":   func(b []byte) []byte { b[2] = 11; return b },
	} {
		_, err := parse(change(slices.Clone(value)))
		if !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "xdp-loader unload") {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// TestInOrder: inOrder puts programs into the order that libxdp uses.
func TestInOrder(t *testing.T) {
	at := func(priority uint32, name, tag string) *member {
		return &member{Settings: Settings{Priority: priority}, name: name, tag: tag}
	}
	want := []*member{at(9, "z", "z"), at(10, "a", "b"), at(10, "b", "a"), at(10, "b", "b"), at(50, "a", "a")}
	got := []*member{want[4], want[3], want[0], want[2], want[1]}
	inOrder(got)
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

// TestWholeNames: where the kernel truncates a name, the name comes from the program's type information, if
// it has any, as in libxdp.
func TestWholeNames(t *testing.T) {
	testenv.Root(t)
	for name, want := range map[string]string{"short": "short", "exactly_fifteen": "exactly_fifteen", "one_that_is_longer": "one_that_is_longer"} {
		load := func(first asm.Instruction) *member {
			p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{first, asm.Return()}})
			testenv.Must(t, err)
			t.Cleanup(func() { p.Close() })
			m, err := newMember(p, ordinary)
			testenv.Must(t, err)
			return m
		}
		first := asm.Mov.Imm(asm.R0, 2)
		if got := load(described(first, name)).name; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		if got, want := load(first).name, name[:min(len(name), 15)]; got != want {
			t.Errorf("%s without types: %s, want %s", name, got, want)
		}
	}
}
