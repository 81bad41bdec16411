package rping

import (
	"bytes"
	"encoding/hex"
	"math"
	"testing"
)

// TestInfo: a message is as rping's on the wire, and nothing else is taken for one.
func TestInfo(t *testing.T) {
	i := Info{Addr: 0x55d0c0ffee00, RKey: 0x1a2b, Size: 64}
	b := i.Append(nil)
	if got := hex.EncodeToString(b); got != "000055d0c0ffee0000001a2b00000040" {
		t.Error(got)
	}
	if back, err := Decode(b, 64); back != i || err != nil {
		t.Errorf("%+v, %v", back, err)
	}
	for _, bad := range [][]byte{nil, b[:15], append(b, 0), Info{Size: 0}.Append(nil), Info{Size: 65}.Append(nil),
		Info{Size: math.MaxUint32}.Append(nil), Info{Addr: math.MaxUint64 - 10, Size: 64}.Append(nil)} {
		if i, err := Decode(bad, 64); err == nil {
			t.Errorf("%x is %+v", bad, i)
		}
	}
}

// TestFill holds the contents to those of rping -v.
func TestFill(t *testing.T) {
	b := make([]byte, Size)
	for n, want := range map[int]string{0: "rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr",
		57: "rdma-ping-57: z" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnop"} {
		Fill(b, n)
		if got := string(bytes.TrimRight(b, "\x00")); got != want {
			t.Errorf("%d: %q, not %q", n, got, want)
		}
	}
	Fill(nil, 1)
}

func FuzzDecode(f *testing.F) {
	f.Add(Info{Addr: 1, RKey: 2, Size: 3}.Append(nil), uint64(64))
	f.Fuzz(func(t *testing.T, b []byte, room uint64) {
		i, err := Decode(b, room)
		if err == nil && (i.Size == 0 || uint64(i.Size) > room || i.Addr+uint64(i.Size) < i.Addr || !bytes.Equal(i.Append(nil), b)) {
			t.Errorf("%x is %+v", b, i)
		}
	})
}
