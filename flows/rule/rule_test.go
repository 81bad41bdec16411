package rule

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/config"
)

func text(s string) config.OrderPart { return config.OrderPart{Text: s} }

func copied(from, n int) config.OrderPart { return config.OrderPart{Copy: &from, Bytes: n} }

func counted(form config.CounterForm, n int) config.OrderPart {
	return config.OrderPart{Counter: form, Bytes: n}
}

// number is a condition about a number of a length.
func numberIs(at, bits int, order config.ByteOrder, low, high uint64) config.Condition {
	return config.Condition{At: at, Bits: bits, Order: order, Min: low, Max: high}
}

// TestConditions: texts, masked bytes and numbers of every length and order are compared with all their bytes, on the
// edges too. A condition about bytes that a message does not have makes it short.
func TestConditions(t *testing.T) {
	for _, c := range []struct {
		is      config.Condition
		message string
		want    Outcome
	}{
		{config.Condition{At: 1, Is: "AB"}, "xABy", Matched},
		{config.Condition{At: 1, Is: "AB"}, "xAB", Matched},
		{config.Condition{At: 1, Is: "AB"}, "xAC", Unmatched},
		{config.Condition{At: 1, Is: "AB"}, "xA", Short},
		{config.Condition{At: 1, Is: "AB"}, "", Short},
		{config.Condition{At: 2, Hex: config.Bytes{0x10, 0x20}, Mask: config.Bytes{0xf0, 0xff}}, "..\x1f\x20", Matched},
		{config.Condition{At: 2, Hex: config.Bytes{0x10, 0x20}, Mask: config.Bytes{0xf0, 0xff}}, "..\x2f\x20", Unmatched},
		{config.Condition{At: 0, Hex: config.Bytes{0, 1}}, "\x00\x01", Matched},
		{config.Condition{At: 65535, Is: "A"}, strings.Repeat("A", 65535), Short},
		{config.Condition{At: 65535, Is: "A"}, strings.Repeat("A", 65536), Matched},
		{numberIs(1, 8, config.BigEndian, 5, 7), "\x00\x05", Matched},
		{numberIs(1, 8, config.BigEndian, 5, 7), "\x00\x08", Unmatched},
		{numberIs(0, 16, config.BigEndian, 0x0102, 0x0102), "\x01\x02", Matched},
		{numberIs(0, 16, config.LittleEndian, 0x0102, 0x0102), "\x01\x02", Unmatched},
		{numberIs(0, 16, config.LittleEndian, 0x0201, 0x0201), "\x01\x02", Matched},
		{numberIs(0, 32, config.BigEndian, 0x01020304, math.MaxUint64), "\x01\x02\x03\x04", Matched},
		{numberIs(0, 32, config.BigEndian, 0x01020305, math.MaxUint64), "\x01\x02\x03\x04", Unmatched},
		{numberIs(0, 32, config.LittleEndian, 0, 0x04030201), "\x01\x02\x03\x04", Matched},
		{numberIs(0, 32, config.LittleEndian, 0, 0x04030200), "\x01\x02\x03\x04", Unmatched},
		{numberIs(0, 64, config.BigEndian, math.MaxUint64, math.MaxUint64), strings.Repeat("\xff", 8), Matched},
		{numberIs(0, 64, config.LittleEndian, 1<<63, math.MaxUint64), "\x00\x00\x00\x00\x00\x00\x00\x80", Matched},
		{numberIs(0, 64, config.LittleEndian, 0, 1<<63-1), "\x00\x00\x00\x00\x00\x00\x00\x80", Unmatched},
		{numberIs(0, 64, config.BigEndian, 0, 1), "\x00\x00\x00\x00\x00\x00\x00", Short},
	} {
		s := New([]config.OrderRule{{Name: "one", When: []config.Condition{c.is}, Order: []config.OrderPart{text("x")}}}, 1)
		if _, got := s.Match([]byte(c.message)); got != c.want {
			t.Errorf("%+v, %.20q: %v, want %v", c.is, c.message, got, c.want)
		}
	}
}

// TestRules: the first rule that fits makes the order, of parts one behind the other. The counter counts what has left,
// for all rules together.
func TestRules(t *testing.T) {
	back := copied(1, 4)
	back.Reverse = true
	s := New([]config.OrderRule{
		{Name: "first", When: []config.Condition{{Is: "A"}, numberIs(1, 32, config.LittleEndian, 0, 100)}, Order: []config.OrderPart{
			text("UO"), counted(config.CounterDecimal, 5), {Hex: config.Bytes{0xff}}, back, copied(0, 1), counted(config.CounterBig, 2), counted(config.CounterLittle, 3),
		}},
		{Name: "second", When: []config.Condition{{Is: "A"}}, Order: []config.OrderPart{copied(3, 4)}},
	}, 99999)
	fire := func(message string) string {
		n, o := s.Match([]byte(message))
		if o != Matched {
			return o.String()
		}
		b := bytes.Repeat([]byte("?"), s.Len(n))
		s.Fill(n, b, []byte(message))
		s.Left(n)
		return string(b)
	}
	for _, c := range []struct{ message, want string }{
		{"A\x01\x00\x00\x00", "UO99999\xff\x00\x00\x00\x01A\x86\x9f\x9f\x86\x01"},
		{"A\x01\x00\x00\x00", "UO00000\xff\x00\x00\x00\x01A\x86\xa0\xa0\x86\x01"}, // digits and bytes wrap around
		{"A\xff\x00\x00\x00\x00\x00", "\x00\x00\x00\x00"},
		{"A\xff\x00\x00\x00\x00", "short"}, // of the second rule
		{"A\x01\x00\x00", "short"},
		{"B\x01\x00\x00\x00\x00\x00", "unmatched"},
		{"", "short"},
	} {
		if got := fire(c.message); got != c.want {
			t.Errorf("%q: %q, want %q", c.message, got, c.want)
		}
	}
	n, _ := s.Match([]byte("A\x01\x00\x00\x00"))
	s.Fill(n, make([]byte, s.Len(n)), []byte("A\x01\x00\x00\x00")) // which does not leave
	got := s.Stats()
	want := Stats{Messages: [Outcomes]uint64{4, 1, 3}, Rules: []RuleStats{{"first", 3, 2}, {"second", 1, 1}}}
	if fmt.Sprint(got) != fmt.Sprint(want) || s.counter != 99999+3 {
		t.Errorf("%+v, counter %d; want %+v", got, s.counter, want)
	}
}

// TestAnswer: the beginning of a stream is compared when there is enough of it, in whatever pieces it comes.
func TestAnswer(t *testing.T) {
	a := NewAnswer([]config.Condition{{At: 2, Is: "A"}, numberIs(4, 16, config.BigEndian, 7, 7)})
	for range 2 {
		for i, c := range []byte("..A.\x00") {
			if got := a.Add([]byte{c}); got != Short {
				t.Fatalf("after %d bytes: %v", i+1, got)
			}
		}
		if got := a.Add([]byte("\x07 and more")); got != Matched || len(a.Bytes()) != 6 {
			t.Errorf("%v, %q", got, a.Bytes())
		}
		a.Reset()
		if got := a.Add([]byte("..J")); got != Unmatched {
			t.Errorf("another answer: %v", got)
		}
		a.Reset()
	}
	if got := string(Constant([]config.OrderPart{text("L"), {Hex: config.Bytes{0, 1}}})); got != "L\x00\x01" {
		t.Errorf("%q", got)
	}
}

// TestHotPath: nothing allocates for a message.
func TestHotPath(t *testing.T) {
	s := benchSet()
	message, b := []byte("Axxxx\x00\x00\x00\x50...."), make([]byte, 64)
	if a := testing.AllocsPerRun(1000, func() { s.fire(message, b) }); a != 0 {
		t.Errorf("a message allocates %v times", a)
	}
}

// fire makes an order, as a sink does.
func (s *Set) fire(message, b []byte) (n int, o Outcome) {
	if n, o = s.Match(message); o == Matched {
		s.Fill(n, b[:s.Len(n)], message)
		s.Left(n)
	}
	return n, o
}

func benchSet() *Set {
	return New([]config.OrderRule{
		{Name: "no", When: []config.Condition{{Is: "B"}}, Order: []config.OrderPart{text("x")}},
		{Name: "yes", When: []config.Condition{{Is: "A"}, numberIs(5, 32, config.BigEndian, 1, 100)}, Order: []config.OrderPart{
			text("UO"), counted(config.CounterDecimal, 14), text("B"), copied(1, 4), copied(5, 4),
		}},
	}, 1)
}

func BenchmarkFire(b *testing.B) {
	s := benchSet()
	message, to := []byte("Axxxx\x00\x00\x00\x50...."), make([]byte, 64)
	for b.Loop() {
		s.fire(message, to)
	}
}

// FuzzRule: no message makes a rule fail. What it matches has all bytes that the rule is about, and the order is as its
// parts say.
func FuzzRule(f *testing.F) {
	f.Add([]byte("A\x00\x00\x00\x64rest"), uint16(1), uint8(2), true, uint64(50), uint64(150), uint16(5), uint8(4), uint8(8), []byte("A"), []byte{0xff}, uint16(0))
	f.Add([]byte{}, uint16(65535), uint8(3), false, uint64(0), uint64(math.MaxUint64), uint16(65535), uint8(255), uint8(1), []byte{0, 0}, []byte{0}, uint16(9))
	f.Fuzz(func(t *testing.T, message []byte, at uint16, width uint8, little bool, low, high uint64, from uint16, n, digits uint8, is, mask []byte, isAt uint16) {
		bits := []int{8, 16, 32, 64}[width%4]
		order := config.BigEndian
		if little {
			order = config.LittleEndian
		}
		c := config.Condition{At: int(isAt), Hex: is, Mask: mask}
		if len(is) == 0 {
			c.Hex, c.Mask = config.Bytes{0}, nil
		}
		for len(c.Mask) > 0 && len(c.Mask) < len(c.Hex) {
			c.Mask = append(c.Mask, 0)
		}
		c.Mask = c.Mask[:min(len(c.Mask), len(c.Hex))]
		for i := range c.Mask {
			c.Hex[i] &= c.Mask[i]
		}
		copyOf := copied(int(from), 1+int(n))
		back := copyOf
		back.Reverse = true
		s := New([]config.OrderRule{{Name: "r", When: []config.Condition{numberIs(int(at), bits, order, low, high), c}, Order: []config.OrderPart{
			text("<"), copyOf, back, counted(config.CounterDecimal, 1+int(digits%20)), text(">"),
		}}}, low)
		number, o := s.Match(message)
		if o != Matched {
			return
		}
		b := make([]byte, s.Len(number))
		s.Fill(number, b, message)
		piece := message[from : int(from)+1+int(n)] // or it must not have matched
		field := message[at : int(at)+bits/8]
		value := uint64(0)
		for i := range field {
			if little {
				value = value<<8 | uint64(field[len(field)-1-i])
			} else {
				value = value<<8 | uint64(field[i])
			}
		}
		if value < low || value > high {
			t.Fatalf("%d matched from %d to %d", value, low, high)
		}
		for i := range c.Hex {
			m := byte(0xff)
			if len(c.Mask) > 0 {
				m = c.Mask[i]
			}
			if message[int(isAt)+i]&m != c.Hex[i] {
				t.Fatalf("byte %d matched", i)
			}
		}
		if b[0] != '<' || b[len(b)-1] != '>' || !bytes.Equal(b[1:1+len(piece)], piece) || b[len(piece)] != b[1+len(piece)] {
			t.Fatalf("%q of %q", b, message)
		}
		wide := fmt.Sprintf("%020d", low)
		if got := string(b[1+2*len(piece) : len(b)-1]); got != wide[20-len(got):] {
			t.Fatalf("the counter %d is %q", low, got)
		}
	})
}
