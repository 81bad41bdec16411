package fix

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var header = Header{Sender: "STRATEGY", Target: "EXCHANGE", Number: 7, At: time.Date(2026, 3, 4, 9, 30, 0, 125_000_000, time.UTC)}

// message is what all messages can do.
type message interface {
	Append(b []byte) ([]byte, error)
	From(m *Message) error
}

// samples has a message of each type, and an empty one to parse into.
func samples() [][2]message {
	return [][2]message{
		{&Logon{header, 30 * time.Second}, new(Logon)},
		{&Heartbeat{header, ""}, new(Heartbeat)},
		{&Heartbeat{header, "are you there"}, new(Heartbeat)},
		{&NewOrder{header, "T42", "UDTEST", Buy, 100, 12_3400, '3'}, new(NewOrder)},
		{&Report{header, "O1", "E1", "T42", 'F', '1', "UDTEST", Buy, 60, 40, 12_3400, 40, 12_3400}, new(Report)},
		{&Report{header, "O1", "E2", "T42", '4', '4', "UDTEST", Sell, 0, 40, 12_0000, 0, 0}, new(Report)},
	}
}

func written(t testing.TB, m message) []byte {
	t.Helper()
	b, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPublishedBytes: a message has the fields, length and checksum of the published format. The example is counted
// and summed by hand.
func TestPublishedBytes(t *testing.T) {
	const body = "35=0|49=A|56=B|34=1|52=20260304-09:30:00.000|"
	text := strings.ReplaceAll("8=FIX.4.4|9=45|"+body, "|", "\x01")
	sum := 0
	for _, c := range []byte(text) {
		sum += int(c)
	}
	want := text + fmt.Sprintf("10=%03d\x01", sum%256)
	if len(body) != 45 {
		t.Fatalf("the body has %d bytes", len(body))
	}
	got := written(t, &Heartbeat{Header{"A", "B", 1, time.Date(2026, 3, 4, 9, 30, 0, 0, time.UTC)}, ""})
	if string(got) != want {
		t.Errorf("%q, want %q", got, want)
	}
	order := written(t, samples()[3][0])
	if want := "11=T42|55=UDTEST|54=1|60=20260304-09:30:00.125|38=100|40=2|44=12.34|59=3|10="; !strings.Contains(strings.ReplaceAll(string(order), "\x01", "|"), want) {
		t.Errorf("%q lacks %q", order, want)
	}
}

// TestMessages: messages are read as they were written, one behind the other, however the stream is cut.
func TestMessages(t *testing.T) {
	var stream []byte
	for _, m := range samples() {
		stream = append(stream, written(t, m[0])...)
	}
	for _, m := range samples() {
		n, err := 0, error(nil)
		for cut := 0; n == 0 && err == nil && cut <= len(stream); cut++ {
			n, err = Next(stream[:cut])
		}
		if err != nil || n == 0 {
			t.Fatalf("%d, %v", n, err)
		}
		p, err := Parse(stream[:n])
		if err == nil {
			err = m[1].From(&p)
		}
		if err != nil || fmt.Sprint(m[1]) != fmt.Sprint(m[0]) {
			t.Errorf("%+v is read as %+v: %v", m[0], m[1], err)
		}
		stream = stream[n:]
	}
}

// seal makes a message of a body, with the right length and checksum.
func seal(body string) []byte {
	body = strings.ReplaceAll(body, "|", "\x01")
	b := fmt.Appendf(nil, "%s%d\x01%s", begin, len(body), body)
	return append(b, trailer(b)...)
}

// TestRefusals: a message that contradicts itself is refused.
func TestRefusals(t *testing.T) {
	good := written(t, samples()[3][0])
	for i := range good { // each byte is under the checksum, or is checked itself
		b := bytes.Clone(good)
		b[i] ^= 4
		if n, err := Next(b); n == len(b) && err == nil {
			t.Errorf("byte %d may change", i)
		}
	}
	for _, stream := range []string{"8=FIX.4.2", "x", begin + "\x01", begin + "-1", begin + "4097\x01", begin + "000000000"} {
		if n, err := Next([]byte(stream)); n != 0 || !errors.Is(err, ErrDamaged) {
			t.Errorf("%q: %d, %v", stream, n, err)
		}
	}
	const head = "49=A|56=B|34=1|52=20260304-09:30:00|"
	for _, body := range []string{
		"", "49=A|", "35=0|", "35=0|" + head + "49=A|", "35=0|" + head + "10=1|", "35=0|" + head + "x", "35=0|" + head + "=1|", "35=0|" + head + "58=|", "35=0|" + head + "058|", "35=0|" + head + "058=x|",
		"35=0|" + head + "100000=1|", "35=0|" + strings.Replace(head, "34=1", "34=0", 1), "35=0|" + strings.Replace(head, "34=1", "34=x", 1),
		"35=0|" + strings.Replace(head, "52=2026", "52=202x", 1), "35=0|" + head + many(),
	} {
		if m, err := Parse(seal(body)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%q is read as %+v: %v", body, m, err)
		}
	}
	const order = "11=1|55=X|54=1|38=5|40=2|44=1.5|59=0|"
	for _, change := range [][2]string{{"54=1", "54=3"}, {"54=1", "54=12"}, {"38=5", "38=0"}, {"38=5", "38=-5"}, {"40=2", "40=1"}, {"44=1.5", "44=1.00001"}, {"44=1.5|", ""}, {"59=0|", ""}, {"11=1|", ""}} {
		m, err := Parse(seal("35=D|" + head + strings.Replace(order, change[0], change[1], 1)))
		if err != nil {
			t.Fatal(err)
		}
		if err := new(NewOrder).From(&m); !errors.Is(err, ErrDamaged) {
			t.Errorf("%q: %v", change, err)
		}
	}
	for _, wrong := range []Heartbeat{{Header{"", "B", 1, header.At}, ""}, {Header{"A\x01", "B", 1, header.At}, ""}, {header, strings.Repeat("x", maxBody)}} {
		if b, err := wrong.Append(nil); err == nil {
			t.Errorf("%+v gives %q", wrong, b)
		}
	}
}

// many is more fields than a message may have.
func many() (s string) {
	for tag := range maxFields {
		s += fmt.Sprintf("%d=x|", 1000+tag)
	}
	return s
}

// TestPrice: prices are read as they are written.
func TestPrice(t *testing.T) {
	for text, want := range map[string]Price{"0": 0, "12": 12_0000, "12.34": 12_3400, "0.0001": 1, "12.50000": 12_5000, "99999999999999": 99999999999999_0000} {
		got, ok := parsePrice(text)
		if again, _ := parsePrice(want.String()); !ok || got != want || again != want {
			t.Errorf("%q: %d, %v; %d is %q", text, got, ok, want, want)
		}
	}
	for _, text := range []string{"", ".", ".5", "-1", "1.2.3", "1e3", "0.00001", "100000000000000", "+1"} {
		if got, ok := parsePrice(text); ok {
			t.Errorf("%q is %d", text, got)
		}
	}
}

// FuzzParse: what is read is within its bytes, and written again it says the same.
func FuzzParse(f *testing.F) {
	for _, m := range samples() {
		f.Add(written(f, m[0]))
	}
	f.Add([]byte(begin + "4096\x01"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		n, err := Next(stream)
		if err != nil || n == 0 || n > maxBody-100 { // written again, it may be longer
			return
		}
		m, err := Parse(stream[:n])
		if err != nil {
			return
		}
		for _, s := range samples() {
			if s[1].From(&m) != nil {
				continue
			}
			p, err := Parse(written(t, s[1]))
			if err != nil {
				t.Fatalf("%q is read as %+v, and that is no message: %v", stream[:n], s[1], err)
			}
			before := fmt.Sprint(s[1])
			if err := s[1].From(&p); err != nil || fmt.Sprint(s[1]) != before {
				t.Fatalf("%s becomes %+v: %v", before, s[1], err)
			}
		}
	})
}
