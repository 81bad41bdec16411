package protocol

import (
	"bytes"
	"testing"
)

// FuzzMessages: if a parser accepts some bytes, encoding the result gives the same bytes.
func FuzzMessages(f *testing.F) {
	for _, m := range forms() {
		f.Add(m.example, false)
		f.Add(m.example[:HeaderLen], true)
		f.Add(changed(m.example, 5, 0, true), true)
	}
	f.Add([]byte{}, true)
	f.Fuzz(func(t *testing.T, b []byte, sealed bool) {
		if sealed && len(b) >= HeaderLen {
			b = append([]byte(nil), b...)
			seal(b)
		}
		_, _ = KindOf(b)
		again(t, b, ParseData, PutData)
		again(t, b, ParseDataHeader, PutData)
		again(t, b, ParseProgress, PutProgress)
		again(t, b, ParseRequest, PutRequest)
		again(t, b, ParseResponse, PutResponse)
		again(t, b, ParseGrant, PutGrant)
	})
}

func again[T any](t *testing.T, b []byte, parse func([]byte) (T, Reason), put func([]byte, *T)) {
	m, r := parse(b)
	if r != None {
		return
	}
	if made := header(func(dst []byte) { put(dst, &m) }); !bytes.Equal(made, b[:HeaderLen]) {
		t.Fatalf("% x is taken as %+v, which is % x", b, m, made)
	}
}

// FuzzHello: if the parser accepts some bytes as a hello, encoding the result gives the same bytes.
func FuzzHello(f *testing.F) {
	good := helloBytes(f, exampleHello())
	f.Add(good)
	f.Add(good[:60])
	f.Add(poke(good, 4, 7))
	f.Add(poke(good, 100, 7))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHello(b)
		if err != nil {
			return
		}
		if made := helloBytes(t, h); !bytes.Equal(made, b) {
			t.Fatalf("% x is taken as %+v, which is % x", b, h, made)
		}
	})
}
