package main

import (
	"bytes"
	"encoding/hex"
	"math"
	"testing"
)

// TestRpingInfo: a message is as rping's on the wire, and nothing else is taken for one.
func TestRpingInfo(t *testing.T) {
	i := rpingInfo{Addr: 0x55d0c0ffee00, RKey: 0x1a2b, Size: 64}
	b := i.append(nil)
	if got := hex.EncodeToString(b); got != "000055d0c0ffee0000001a2b00000040" {
		t.Error(got)
	}
	if back, err := decodeInfo(b, 64); back != i || err != nil {
		t.Errorf("%+v, %v", back, err)
	}
	for _, bad := range [][]byte{nil, b[:15], append(b, 0), rpingInfo{Size: 0}.append(nil), rpingInfo{Size: 65}.append(nil),
		rpingInfo{Size: math.MaxUint32}.append(nil), rpingInfo{Addr: math.MaxUint64 - 10, Size: 64}.append(nil)} {
		if i, err := decodeInfo(bad, 64); err == nil {
			t.Errorf("%x is %+v", bad, i)
		}
	}
}

// TestRpingFill holds the contents to those of rping -v.
func TestRpingFill(t *testing.T) {
	b := make([]byte, rpingSize)
	for n, want := range map[int]string{0: "rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr",
		57: "rdma-ping-57: z" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnop"} {
		fillPing(b, n)
		if got := string(bytes.TrimRight(b, "\x00")); got != want {
			t.Errorf("%d: %q, not %q", n, got, want)
		}
	}
	fillPing(nil, 1)
}

func FuzzRpingInfo(f *testing.F) {
	f.Add(rpingInfo{Addr: 1, RKey: 2, Size: 3}.append(nil), uint64(64))
	f.Fuzz(func(t *testing.T, b []byte, room uint64) {
		i, err := decodeInfo(b, room)
		if err == nil && (i.Size == 0 || uint64(i.Size) > room || i.Addr+uint64(i.Size) < i.Addr || !bytes.Equal(i.append(nil), b)) {
			t.Errorf("%x is %+v", b, i)
		}
	})
}
