package protocol

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

func exampleHello() Hello {
	return Hello{Role: RoleAppend, Flow: "wal", Message: 2112, Window: 64, Durability: Durable, Session: 0x1122334455667788, Next: 41, Capabilities: 1 << 63,
		Size: 1 << 40, Align: 512}
}

func helloBytes(t testing.TB, h Hello) []byte {
	t.Helper()
	b, err := h.Append(nil)
	testenv.Must(t, err)
	return b
}

func TestHelloBytes(t *testing.T) {
	want := "75484c4f 01 01 03 00 00000840 00000040 1122334455667788 0000000000000029 8000000000000000 0000010000000000 00000200 " + strings.Repeat("00", 12) + " 77616c" + strings.Repeat("00", 61)
	if got := hex.EncodeToString(helloBytes(t, exampleHello())); got != strings.ReplaceAll(want, " ", "") {
		t.Errorf("it is\n%s", got)
	}
}

func TestHelloRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u32, u64 := rapid.Uint32(), rapid.Uint64()
		h := Hello{Role: Role(rapid.IntRange(1, 2).Draw(t, "role")), Flow: rapid.StringMatching(`[a-z0-9-]{0,63}`).Draw(t, "flow"), Message: u32.Draw(t, "message"), Window: u32.Draw(t, "window"),
			Durability: Durability(rapid.IntRange(0, 3).Draw(t, "durability")), Session: u64.Draw(t, "session"), Next: u64.Draw(t, "next"),
			Capabilities: u64.Draw(t, "capabilities"), Size: u64.Draw(t, "size"), Align: 1 << rapid.IntRange(0, 31).Draw(t, "align")}
		b, err := h.Append([]byte("in front"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseHello(b[len("in front"):])
		if diff := cmp.Diff(h, got); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}

func TestHellosThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		change func(h *Hello)
		want   Reason
	}{
		"no role":            {func(h *Hello) { h.Role = 0 }, BadReserved},
		"another role":       {func(h *Hello) { h.Role = 7 }, BadReserved},
		"another durability": {func(h *Hello) { h.Durability = 4 }, BadReserved},
		"odd alignment":      {func(h *Hello) { h.Align = 513 }, BadReserved},
		"a long name":        {func(h *Hello) { h.Flow = strings.Repeat("a", MaxFlow+1) }, TooLong},
		"a path":             {func(h *Hello) { h.Flow = "a/b" }, BadReserved},
		"a zero in the name": {func(h *Hello) { h.Flow = "a\x00b" }, BadReserved},
	} {
		h := exampleHello()
		c.change(&h)
		if b, err := h.Append([]byte("x")); !errors.Is(err, c.want) || string(b) != "x" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

func TestHellosFromElsewhere(t *testing.T) {
	good := helloBytes(t, exampleHello())
	for name, c := range map[string]struct {
		b    []byte
		want Reason
	}{
		"nothing":         {nil, BadMagic},
		"magic alone":     {good[:4], BadMagic},
		"a greeting":      {[]byte("good evening"), BadMagic},
		"cut":             {good[:HelloLen-1], BadLength},
		"longer":          {append(append([]byte(nil), good...), 0), BadLength},
		"version":         {poke(good, 4, 2), BadVersion},
		"shorter version": {poke(good, 4, 9)[:5], BadVersion},
		"role":            {poke(good, 5, 9), BadReserved},
		"durability":      {poke(good, 6, 9), BadReserved},
		"byte 7":          {poke(good, 7, 1), BadReserved},
		"byte 56":         {poke(good, 56, 1), BadReserved},
		"byte 63":         {poke(good, 63, 1), BadReserved},
		"name's end":      {poke(good, 127, 'a'), BadReserved},
		"name":            {poke(good, 64, 'W'), BadReserved},
		"name too long":   {append(append([]byte(nil), good[:64]...), strings.Repeat("a", 64)...), TooLong},
	} {
		if h, err := ParseHello(c.b); !errors.Is(err, c.want) || h != (Hello{}) {
			t.Errorf("%s: %+v, %v, want %v", name, h, err, c.want)
		}
	}
	_, err := ParseHello(poke(good, 4, 2))
	for _, word := range []string{"version 2", "this program 1"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
}

func poke(b []byte, at int, v byte) []byte {
	c := append([]byte(nil), b...)
	c[at] = v
	return c
}
