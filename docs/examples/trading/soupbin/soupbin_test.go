package soupbin

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestPublishedBytes: packets have the bytes that the published format gives them.
func TestPublishedBytes(t *testing.T) {
	login, err := (&Login{User: "trader", Password: "secret", Session: "DAY1", Sequence: 7, Timeout: 5 * time.Second}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		got  []byte
		want string
	}{
		{login, "\x00\x34Ltradersecret          DAY1                   7 5000"},
		{(&Accepted{Session: "DAY1", Sequence: 1}).Append(nil), "\x00\x1fA      DAY1                   1"},
		{NotAuthorized.Append(nil), "\x00\x02JA"},
		{Append(nil, ClientHeartbeat), "\x00\x01R"},
		{Append([]byte("x"), UnsequencedData, []byte("OUCH")...), "x\x00\x05UOUCH"},
	} {
		if string(c.got) != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

// TestSession: both ends read what the other wrote, however the stream is cut.
func TestSession(t *testing.T) {
	for _, timeout := range []time.Duration{0, 1500 * time.Millisecond} {
		want := Login{User: "u", Password: "p", Session: "NIGHT", Sequence: 1<<64 - 1, Timeout: timeout}
		stream, err := want.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		accepted := Accepted{Session: "NIGHT", Sequence: 99}
		stream = append(accepted.Append(stream), NoSession.Append(nil)...)
		stream = Append(Append(stream, SequencedData, 1, 2, 3), EndOfSession)
		var got []Packet
		for cut := 1; len(stream) > 0; {
			p, n, err := Next(stream[:min(cut, len(stream))])
			switch {
			case err != nil:
				t.Fatal(err)
			case n == 0:
				cut++
			default:
				got, stream, cut = append(got, p), stream[n:], 1
			}
		}
		var login Login
		var a Accepted
		var r Rejection
		if len(got) != 5 || login.Parse(got[0].Payload) != nil || a.Parse(got[1].Payload) != nil || r.Parse(got[2].Payload) != nil {
			t.Fatalf("%q", got)
		}
		if login != want || a != accepted || r != NoSession || !strings.Contains(r.Error(), "session") || got[4].Type != EndOfSession || !bytes.Equal(got[3].Payload, []byte{1, 2, 3}) {
			t.Errorf("%+v, %+v, %q, %q", login, a, r, got)
		}
	}
}

// TestRefusals: lengths that lie, unknown types and fields that are no numbers are refused.
func TestRefusals(t *testing.T) {
	for _, stream := range []string{"\x00\x00", "\xff\xffS", "\x0f\xffS", "\x00\x01?", "\x00\x01\x00"} {
		if _, n, err := Next([]byte(stream)); n != 0 || !errors.Is(err, ErrDamaged) {
			t.Errorf("%q: %d, %v", stream, n, err)
		}
	}
	for _, stream := range []string{"", "\x00", "\x00\x02", "\x00\x02S", "\x0f\xfeS"} {
		if _, n, err := Next([]byte(stream)); n != 0 || err != nil {
			t.Errorf("%q: %d, %v", stream, n, err)
		}
	}
	for _, payload := range []string{"", strings.Repeat(" ", 45), strings.Repeat(" ", 47), strings.Repeat("x", 46), strings.Repeat(" ", 26) + "18446744073709551616", strings.Repeat(" ", 45) + "+", strings.Repeat(" ", 44) + "-1"} {
		if err := new(Login).Parse([]byte(payload)); !errors.Is(err, ErrDamaged) {
			t.Errorf("login %q: %v", payload, err)
		}
	}
	for _, l := range []Login{{User: "seven77"}, {Password: "elevenchars"}, {Session: "elevenchars"}, {User: "é"}, {Password: "a b"}, {Timeout: 100 * time.Second}, {Timeout: -time.Second}} {
		if b, err := l.Append(nil); err == nil || b != nil {
			t.Errorf("%+v gives %q", l, b)
		}
	}
	if err := new(Accepted).Parse(make([]byte, 30)); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
	if err := new(Rejection).Parse(nil); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
}

// FuzzNext: a packet is within the stream, and writing it again gives the same bytes.
func FuzzNext(f *testing.F) {
	login, _ := (&Login{User: "u"}).Append(nil)
	f.Add(login)
	f.Add((&Accepted{Session: "S", Sequence: 3}).Append(nil))
	f.Add([]byte("\xff\xffS"))
	f.Add([]byte("\x00\x00"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		p, n, err := Next(stream)
		if n == 0 || err != nil {
			if n != 0 || p.Payload != nil {
				t.Fatalf("%q, %d, %v", p.Payload, n, err)
			}
			return
		}
		if !bytes.Equal(Append(nil, p.Type, p.Payload...), stream[:n]) {
			t.Fatalf("%q is read as %q", stream[:n], p)
		}
		_, _, _ = new(Login).Parse(p.Payload), new(Accepted).Parse(p.Payload), new(Rejection).Parse(p.Payload)
	})
}
