package powercut

import (
	"bytes"
	"errors"
	"testing"
)

func TestCheckLog(t *testing.T) {
	log := []Message{{1, 1}, {2, 1}, {2, 2}, {1, 2}, {1, 3}}
	swapped := []Message{{1, 2}, {1, 1}}
	status := func(durable uint64) []Claim { return []Claim{{Marker: Marker{Packets: durable}}} }
	told := func(client uint32, number, position uint64) []Claim {
		return []Claim{{Marker: Marker{Client: client, Packets: number, Position: position}}}
	}
	for _, c := range []struct {
		found      []Message
		first      uint64
		claims     []Claim
		overwrites bool
		want       error
	}{
		{nil, 1, nil, false, nil},
		{nil, 1, status(0), false, nil},
		{nil, 1, status(1), false, errLost},
		{log, 1, status(5), false, nil},
		{log, 1, status(6), false, errLost},
		{log, 1, told(2, 2, 3), false, nil},
		{log, 1, told(2, 2, 4), false, errLost},
		{log, 1, told(2, 2, 6), false, errLost},
		{log, 2, nil, false, errLost},
		{log[1:], 1, nil, false, errOrder},
		{log[2:], 1, nil, false, errOrder},
		{log[3:], 4, told(1, 3, 5), true, nil},
		{log[3:], 4, told(2, 2, 3), true, nil},
		{log, 1, told(1, 2, 5), false, nil},
		{log[3:], 4, told(1, 3, 4), true, errLost},
		{append(log[:2:2], log[1:]...), 1, nil, false, errOrder},
		{append(log[:3:3], log[4:]...), 1, nil, false, errOrder},
		{swapped, 1, nil, false, errOrder},
		{swapped, 7, nil, true, errOrder},
	} {
		if err := checkLog(c.found, c.first, c.claims, c.overwrites); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestMessagesDiffer(t *testing.T) {
	a := Message{1, 7}.Bytes()
	for _, m := range []Message{{2, 7}, {1, 8}, {7, 1}} {
		if b := m.Bytes(); len(b) < 8 || len(b) > mostPayload || bytes.Equal(a[:8], b[:8]) {
			t.Errorf("%+v and another begin alike, or it has %d bytes", m, len(b))
		}
	}
}
