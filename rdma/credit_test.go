package rdma

import (
	"bytes"
	"testing"
)

func encode(cs ...credit) []byte {
	b := bytes.Repeat([]byte{0xee}, controlBytes)
	for n, c := range cs {
		writeCredit(b, n, c)
	}
	return b[:writeCreditHeader(b, len(cs))]
}

func TestCreditsRoundTrip(t *testing.T) {
	var want []credit
	for n := range uint32(creditsMost) {
		want = append(want, credit{slot: n, rkey: 0xfffffff0 + n, addr: 1<<63 + uint64(n), length: 1<<32 - 1 - n})
	}
	b := encode(want...)
	if n, err := readCreditHeader(b); n != creditsMost || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	for n := range want {
		if c, err := readCredit(b, n); c != want[n] || err != nil {
			t.Errorf("%+v, %v: want %+v", c, err, want[n])
		}
	}
}

// TestCreditsOnTheWire holds the format to the bytes it had first.
func TestCreditsOnTheWire(t *testing.T) {
	want := []byte{'U', 'C', 1, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0x11, 0x22, 0x33, 0x44, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x10, 0, 0, 0, 0, 0}
	if got := encode(credit{7, 0x11223344, 0x0102030405060708, 4096}); !bytes.Equal(got, want) {
		t.Errorf("% x\nwant\n% x", got, want)
	}
}

func TestCreditsRefused(t *testing.T) {
	good := encode(credit{length: 1}, credit{length: 1})
	spoil := func(at int, b byte) []byte { s := bytes.Clone(good); s[at] = b; return s }
	for name, b := range map[string][]byte{
		"nothing": nil, "short": good[:5], "a byte less": good[:len(good)-1], "a byte more": append(bytes.Clone(good), 0),
		"no mark": spoil(0, 'u'), "version": spoil(2, 2), "none": encode(), "more than there are": spoil(3, 3), "fewer": spoil(3, 1),
		"reserved": spoil(6, 1),
	} {
		if n, err := readCreditHeader(b); err == nil {
			t.Errorf("%s: %d credits", name, n)
		}
	}
	for name, b := range map[string][]byte{"reserved": spoil(creditHeader+23, 1), "beyond all addresses": encode(credit{addr: 1<<64 - 1, length: 2})} {
		if c, err := readCredit(b, 0); err == nil {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func FuzzCredits(f *testing.F) {
	f.Add(encode(credit{slot: 1, rkey: 2, addr: 3, length: 4}))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := readCreditHeader(b)
		if err != nil {
			return
		}
		var cs []credit
		for i := range n {
			c, err := readCredit(b, i)
			if err != nil {
				return
			}
			cs = append(cs, c)
		}
		if n <= creditsMost && !bytes.Equal(encode(cs...), b) {
			t.Errorf("% x is read as %+v", b, cs)
		}
	})
}
