package ouch

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
)

// message is what all messages can do.
type message interface {
	Append(b []byte) []byte
	Parse(b []byte) error
}

var order = Enter{
	Token: Token([]byte("T0000000000042")), Side: Buy, Shares: 100, Stock: Stock([]byte("UDTEST  ")), Price: 12_3400, TimeInForce: SystemHours,
	Firm: [4]byte([]byte("UNIF")), Display: 'Y', Capacity: 'P', Sweep: 'N', Least: 1, Cross: 'N', Customer: 'N',
}

// samples has a message of each type, an empty one to parse into, and its bytes by the published format.
func samples() []struct {
	m, into message
	want    string
} {
	token, echo := order.Token, order
	echo.Customer = 0
	return []struct {
		m, into message
		want    string
	}{
		{&order, new(Enter), "OT0000000000042B\x00\x00\x00dUDTEST  \x00\x01\xe2\x08\x00\x01\x86\x9fUNIFYPN\x00\x00\x00\x01NN"},
		{&Cancel{token, 3}, new(Cancel), "XT0000000000042\x00\x00\x00\x03"},
		{&Event{5, 'S'}, new(Event), "S\x00\x00\x00\x00\x00\x00\x00\x05S"},
		{&Accepted{5, echo, 9, 'L', ' '}, new(Accepted), "A\x00\x00\x00\x00\x00\x00\x00\x05T0000000000042B\x00\x00\x00dUDTEST  \x00\x01\xe2\x08\x00\x01\x86\x9fUNIFY" +
			"\x00\x00\x00\x00\x00\x00\x00\x09PN\x00\x00\x00\x01NL "},
		{&Executed{5, token, 100, 12_3400, 'R', 77}, new(Executed), "E\x00\x00\x00\x00\x00\x00\x00\x05T0000000000042\x00\x00\x00d\x00\x01\xe2\x08R\x00\x00\x00\x00\x00\x00\x00M"},
		{&Canceled{5, token, 100, 'U'}, new(Canceled), "C\x00\x00\x00\x00\x00\x00\x00\x05T0000000000042\x00\x00\x00dU"},
		{&Rejected{5, token, 'Z'}, new(Rejected), "J\x00\x00\x00\x00\x00\x00\x00\x05T0000000000042Z"},
	}
}

// TestPublishedBytes: messages have the bytes that the published format gives them, and are read from them. Other
// lengths and types are refused.
func TestPublishedBytes(t *testing.T) {
	for _, c := range samples() {
		b := c.m.Append(nil)
		if string(b) != c.want {
			t.Errorf("%T: %q, want %q", c.m, b, c.want)
		}
		if err := c.into.Parse(b); err != nil || fmt.Sprint(c.into) != fmt.Sprint(c.m) {
			t.Errorf("%+v is read as %+v: %v", c.m, c.into, err)
		}
		for _, wrong := range [][]byte{nil, b[:len(b)-1], append(bytes.Clone(b), 0), append([]byte{'?'}, b[1:]...)} {
			if err := c.into.Parse(wrong); !errors.Is(err, ErrDamaged) {
				t.Errorf("%T, %q: %v", c.m, wrong, err)
			}
		}
	}
}

// TestPlaces: the places of fields are those of the published format.
func TestPlaces(t *testing.T) {
	b := order.Append(nil)
	if len(b) != EnterLen || Token(b[EnterToken:]) != order.Token || Side(b[EnterSide]) != order.Side || b[EnterShares+3] != 100 || Stock(b[EnterStock:]) != order.Stock ||
		b[EnterPrice+1] != 0x01 || b[EnterPrice+3] != 0x08 {
		t.Errorf("%q", b)
	}
}

// TestRefusals: an order that no exchange takes is refused.
func TestRefusals(t *testing.T) {
	for _, change := range []func(*Enter){
		func(m *Enter) { m.Side = 'x' }, func(m *Enter) { m.Shares = 0 }, func(m *Enter) { m.Shares = MaxShares + 1 },
		func(m *Enter) { m.Price = 0 }, func(m *Enter) { m.Price = MaxPrice + 1 },
	} {
		m := order
		change(&m)
		if err := new(Enter).Parse(m.Append(nil)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%+v: %v", m, err)
		}
	}
}

// FuzzParse: what is read and written again has the same bytes.
func FuzzParse(f *testing.F) {
	for _, c := range samples() {
		f.Add([]byte(c.want))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		read := 0
		for _, c := range samples() {
			if c.into.Parse(b) != nil {
				continue
			}
			read++
			if got := c.into.Append(nil); !bytes.Equal(got, b) {
				t.Fatalf("%q becomes %q", b, got)
			}
		}
		if read > 1 {
			t.Fatalf("%q is %d messages", b, read)
		}
	})
}
