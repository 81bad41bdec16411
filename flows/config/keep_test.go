package config

import (
	"testing"
	"time"
)

// TestKeep: each limit is read as what it is, and Space is the most that all of them allow.
func TestKeep(t *testing.T) {
	for text, want := range map[string]Keep{
		"0": {}, "24": {Count: 24}, "24GiB": {Bytes: 24 * GiB}, "7d": {Age: 168 * time.Hour}, "36h": {Age: 36 * time.Hour}, "5m": {Age: 5 * time.Minute},
		"[24, 30GiB, 7d]": {24, 30 * GiB, 168 * time.Hour},
	} {
		c, err := Parse("keep.yaml", []byte("flows: [{name: f, from: {generate: 64}, to: {file: /f, segment: {keep: "+text+"}}}]"), Options{})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := c.Flows[0].To.Segment.Keep; got != want {
			t.Errorf("%s is %+v, not %+v", text, got, want)
		}
	}
	for _, one := range []struct {
		keep Keep
		want Size
	}{{Keep{}, 0}, {Keep{Age: time.Hour}, 0}, {Keep{Count: 24}, 25 * GiB}, {Keep{Bytes: 24 * GiB}, 24 * GiB}, {Keep{Count: 24, Bytes: 30 * GiB}, 25 * GiB}} {
		if got := one.keep.Space(GiB); got != one.want {
			t.Errorf("%v takes %s, not %s", one.keep, got, one.want)
		}
	}
}

// TestDefaultRoom: what stays free by default is small on a small disk, and no more than 10 GiB on a large one.
func TestDefaultRoom(t *testing.T) {
	for disk, want := range map[uint64]uint64{0: 0, 64 << 20: 3355440, 100 << 30: 5 << 30, 30 << 40: 10 << 30} {
		if got := DefaultRoom.Of(disk); got < want-min(want, 100) || got > want+100 {
			t.Errorf("of %d bytes %d stay free, not %d", disk, got, want)
		}
	}
}
