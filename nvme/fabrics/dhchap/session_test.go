package dhchap

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

func newPair(t testing.TB, g Group, mutual bool) (*Session, *host) {
	t.Helper()
	theirs, ours := secret(t, hashedKey), secret(t, plainKey)
	h, k := &host{t: t, host: &theirs, transaction: 0x1234}, Keys{Host: theirs, Controller: &ours}
	if mutual {
		h.controller = &ours
	}
	return NewSession(Config{Host: hostNQN, Subsystem: subNQN, Keys: k, Group: g}), h
}

// TestSession: a host with its key authenticates, and so does the controller, in each group and
// with each hash function, also a second time.
func TestSession(t *testing.T) {
	for g := Null; g <= FFDHE8192; g++ {
		for hash := SHA256; hash <= SHA512; hash++ {
			mutual := (int(g)+int(hash))%2 == 0
			t.Run(fmt.Sprintf("%v %d mutual %v", g, hash, mutual), func(t *testing.T) {
				s, h := newPair(t, g, mutual)
				for range 2 {
					s.Take(h.negotiation([]Hash{hash, 9}, []Group{g}))
					s.Take(h.reply(s.Next()))
					if !h.accepted(s.Next()) {
						t.Error("the controller does not have its key")
					}
					if mutual {
						s.Take(h.short(dhchap, success2, bodyLen))
					}
					if !s.Proven() || s.Err() != nil || h.hash != hash || h.group != g {
						t.Fatalf("%v, %v; by %d in %v", s.Proven(), s.Err(), h.hash, h.group)
					}
					h.transaction++
				}
			})
		}
	}
}

// refused checks that a session failed, and that its message says so.
func refused(t *testing.T, s *Session, why Reason) {
	t.Helper()
	if s.Proven() || !errors.Is(s.Err(), why) {
		t.Errorf("%v, proven %v, and not %v", s.Err(), s.Proven(), why)
	}
	if b := s.Next(); !s.Over() || len(b) != failureLen || b[0] != common || b[1] != failure1 || b[6] != reasonFails || Reason(b[7]) != why {
		t.Errorf("the host is told % x", b)
	}
}

// TestNegotiate: a negotiation without an agreement is refused with its reason.
func TestNegotiate(t *testing.T) {
	h := &host{t: t}
	change := func(f func(b []byte)) []byte { b := h.all(); f(b); return b }
	for _, c := range []struct {
		b   []byte
		why Reason
	}{
		{h.negotiation([]Hash{4, 0, 255}, []Group{FFDHE2048}), HashUnusable},
		{h.negotiation([]Hash{SHA256}, []Group{Null, FFDHE8192}), GroupUnusable},
		{h.negotiation(nil, []Group{FFDHE2048}), IncorrectPayload},
		{h.negotiation([]Hash{SHA256}, nil), IncorrectPayload},
		{change(func(b []byte) { b[6] = 1 }), ConcatMismatch},
		{change(func(b []byte) { b[7] = 0 }), IncorrectPayload},
		{change(func(b []byte) { b[7] = 2 }), IncorrectPayload},
		{change(func(b []byte) { b[8] = 2 }), NotUsable},
		{change(func(b []byte) { b[10] = 31 }), IncorrectPayload},
		{change(func(b []byte) { b[11] = 200 }), IncorrectPayload},
		{h.all()[:negotiateLen-1], IncorrectPayload},
		{h.all()[:headerLen-1], IncorrectMessage},
		{nil, IncorrectMessage},
	} {
		s, _ := newPair(t, FFDHE2048, false)
		s.Take(c.b)
		refused(t, s, c.why)
	}
}

// TestReply: a host without the key, or with a malformed reply, is refused, even if the right
// answer follows.
func TestReply(t *testing.T) {
	const n = 64
	for name, c := range map[string]struct {
		change func(s *Session, b []byte) []byte
		why    Reason
	}{
		"proof":       {func(_ *Session, b []byte) []byte { b[bodyLen+n-1]++; return b }, Failed},
		"length":      {func(_ *Session, b []byte) []byte { return b[:len(b)-1] }, IncorrectPayload},
		"short":       {func(_ *Session, b []byte) []byte { return b[:bodyLen-1] }, IncorrectPayload},
		"hash length": {func(_ *Session, b []byte) []byte { b[6] = 32; return b }, IncorrectPayload},
		"transaction": {func(_ *Session, b []byte) []byte { b[4]++; return b }, IncorrectPayload},
		"no sequence": {func(_ *Session, b []byte) []byte { clear(b[12:16]); return b }, IncorrectPayload},
		"flag":        {func(_ *Session, b []byte) []byte { b[8] = 2; return b }, IncorrectPayload},
		"reflected":   {func(s *Session, b []byte) []byte { copy(b[bodyLen+n:], s.challenge); return b }, Failed},
		"zero":        {func(_ *Session, b []byte) []byte { clear(b[bodyLen+2*n:]); return b }, GroupUnusable},
		"one":         {func(_ *Session, b []byte) []byte { clear(b[bodyLen+2*n:]); b[len(b)-1] = 1; return b }, GroupUnusable},
		"minus one": {func(_ *Session, b []byte) []byte {
			copy(b[bodyLen+2*n:], FFDHE2048.prime().Bytes())
			b[len(b)-1]--
			return b
		}, GroupUnusable},
		"prime":    {func(_ *Session, b []byte) []byte { copy(b[bodyLen+2*n:], FFDHE2048.prime().Bytes()); return b }, GroupUnusable},
		"too long": {func(_ *Session, b []byte) []byte { le.PutUint16(b[10:], 257); return append(b, 1) }, GroupUnusable},
		"again":    {func(_ *Session, b []byte) []byte { b[1] = challenge; return b }, IncorrectMessage},
	} {
		t.Run(name, func(t *testing.T) {
			s, h := newPair(t, FFDHE2048, true)
			s.Take(h.all())
			right := h.reply(s.Next())
			s.Take(c.change(s, bytes.Clone(right)))
			s.Take(right)
			s.Take(h.all())
			if s.Over() {
				t.Error("it is over before the host knows")
			}
			refused(t, s, c.why)
		})
	}
}

// TestOrder: a message out of order ends the session. A host counts as authenticated only after the
// controller has answered it.
func TestOrder(t *testing.T) {
	s, h := newPair(t, Null, true)
	refusedAfter := func(f func()) {
		t.Helper()
		s, h = newPair(t, Null, true)
		f()
		refused(t, s, IncorrectMessage)
	}
	refusedAfter(func() { s.Next() })
	refusedAfter(func() { s.Take(h.all()); s.Take(h.all()) })
	refusedAfter(func() { s.Take(h.all()); s.Next(); s.Next() })
	refusedAfter(func() { h.transaction = 0; s.Take(h.short(dhchap, success2, bodyLen)) })
	refusedAfter(func() { h.transaction = 0; s.Take(h.short(dhchap, reply, bodyLen+128)) })
	refusedAfter(func() { s.Take(h.all()); s.Take(h.reply(bytes.Clone(s.next))) })
	s, h = newPair(t, Null, true)
	s.Take(h.all())
	s.Take(h.reply(s.Next()))
	if s.Proven() {
		t.Error("proven while the host looks at our proof")
	}
	s.Next()
	s.Take(append(h.short(common, failure2, failureLen)[:7], byte(Failed)))
	if s.Proven() || !errors.Is(s.Err(), Failed) || !s.Over() {
		t.Errorf("%v after the host has refused us", s.Err())
	}
}

// TestOneWay: a controller without a key authenticates a host that does not ask for its proof, and the success
// message has no response value. If the host asks for the proof, the session fails.
func TestOneWay(t *testing.T) {
	s, h := newPair(t, Null, false)
	s.config.Keys.Controller = nil
	s.Take(h.all())
	s.Take(h.reply(s.Next()))
	if b := s.Next(); len(b) != bodyLen || b[1] != success1 || b[8] != 0 {
		t.Errorf("the host is told % x", b)
	}
	if !s.Proven() || s.Err() != nil {
		t.Errorf("%v, proven %v", s.Err(), s.Proven())
	}
	s, h = newPair(t, Null, true)
	s.config.Keys.Controller = nil
	s.Take(h.all())
	s.Take(h.reply(s.Next()))
	refused(t, s, Failed)
}

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	valid := func(s string) bool { return strings.HasPrefix(s, "nqn.") }
	write := func(text string, mode os.FileMode) {
		t.Helper()
		testenv.Must(t, errors.Join(os.RemoveAll(path), os.WriteFile(path, []byte(text), mode)))
	}
	write("# of hosts\n\n  nqn.a "+plainKey+"\nnqn.b\t"+plainKey+" "+hashedKey+"\n", 0o600)
	all, err := ReadKeys(path, valid)
	if err != nil || len(all) != 2 || all["nqn.a"].Controller != nil || all["nqn.b"].Controller.hash != SHA384 {
		t.Errorf("%v, %v", all, err)
	}
	for text, want := range map[string]string{
		"nqn.a":                                              ":1: 1 words",
		"#\nname " + plainKey:                                ":2: \"name\" is no NQN",
		"nqn.a " + plainKey[:20]:                             ":1: host nqn.a: no key as nvme",
		"nqn.a " + plainKey + " x":                           ":1: controller of host nqn.a: no key",
		"nqn.a " + plainKey + " " + plainKey:                 "have the same key",
		"nqn.a " + plainKey + "\nnqn.a " + plainKey + "\n":   ":2: host nqn.a has a line already",
		"nqn.a " + plainKey + " " + hashedKey + " " + "more": "4 words",
	} {
		write(text, 0o600)
		if _, err := ReadKeys(path, valid); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "AAEC") {
			t.Errorf("%q: %v, not %q", text, err, want)
		}
	}
	write("# nobody\n", 0o600)
	if all, err := ReadKeys(path, valid); err != nil || all == nil || len(all) != 0 {
		t.Errorf("of a file without keys: %v, %v", all, err)
	}
	write("nqn.a "+plainKey, 0o640)
	if _, err := ReadKeys(path, valid); err == nil || !strings.Contains(err.Error(), "chmod 0600") {
		t.Errorf("mode 0640: %v", err)
	}
	if _, err := ReadKeys(filepath.Dir(path), valid); err == nil || !strings.Contains(err.Error(), "is no file") {
		t.Error(err)
	}
}

// FuzzSession: whatever messages arrive, no host authenticates without a computed proof.
func FuzzSession(f *testing.F) {
	s, h := newPair(f, Null, true)
	f.Add(h.all(), h.short(dhchap, success2, bodyLen), []byte{}, true)
	s.Take(h.all())
	f.Add(h.all(), h.reply(s.Next()), h.short(dhchap, success2, bodyLen), true)
	f.Add(h.all(), h.all(), h.short(common, failure2, failureLen), false)
	f.Fuzz(func(t *testing.T, a, b, c []byte, fetched bool) {
		s, _ := newPair(t, Null, true)
		for _, message := range [][]byte{a, b, c} {
			s.Take(message)
			if fetched {
				if m := s.Next(); len(m) < failureLen || len(m) > Longest {
					t.Fatalf("% x", m)
				}
			}
			if s.Proven() {
				t.Fatalf("% x, % x, % x", a, b, c)
			}
		}
	})
}

// TestEmptyKeyProvesNothing: neither a host nor a controller without a key authenticates by the
// proof of an empty key, which anyone can compute.
func TestEmptyKeyProvesNothing(t *testing.T) {
	key, none := secret(t, plainKey), Secret{}
	for name, c := range map[string]struct {
		keys Keys
		host host
	}{
		"no keys":             {Keys{}, host{host: &none}},
		"no host's key":       {Keys{Controller: &key}, host{host: &none, controller: &key}},
		"no controller's key": {Keys{Host: key, Controller: &none}, host{host: &key, controller: &none}},
	} {
		t.Run(name, func(t *testing.T) {
			for g := Null; g <= FFDHE2048; g++ {
				c.host.t = t
				s := NewSession(Config{Host: hostNQN, Subsystem: subNQN, Keys: c.keys, Group: g})
				s.Take(c.host.negotiation([]Hash{SHA256}, []Group{g}))
				s.Take(c.host.reply(s.Next()))
				refused(t, s, Failed)
			}
		})
	}
	if _, err := ParseSecret("DHHC-1:00:AAAAAA==:"); err == nil || !strings.Contains(err.Error(), "0 bytes") {
		t.Errorf("a key of no bytes: %v", err)
	}
}
