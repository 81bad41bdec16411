package replica

import (
	"log/slog"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/group"
	"github.com/unifiedd/unifiedd/flows/group/election"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestTurns: members ask for an election one after the other, in the order of their numbers. Nobody waits for a member
// that is not connected, nor for a witness, which itself asks last.
func TestTurns(t *testing.T) {
	for _, c := range []struct {
		self     uint32
		witness  uint32
		lost     []uint32
		waitsFor time.Duration
	}{
		{self: 1}, {self: 2, waitsFor: 1}, {self: 3, waitsFor: 2},
		{self: 3, lost: []uint32{1}, waitsFor: 1}, {self: 3, lost: []uint32{1, 2}},
		{self: 1, witness: 1, waitsFor: 2}, {self: 2, witness: 1}, {self: 3, witness: 1, waitsFor: 1},
	} {
		var witnesses []uint32
		if c.witness > 0 {
			witnesses = append(witnesses, c.witness)
		}
		m, err := group.NewMember(group.MemberConfig{
			Self: c.self, Witnesses: witnesses, State: election.First([]uint32{1, 2, 3}), Log: func() (l group.Log) { return l }, Logger: slog.New(slog.DiscardHandler),
		})
		testenv.Must(t, err)
		d := &Driver{config: DriverConfig{Self: c.self}, member: m, lost: map[uint32]time.Time{}}
		for _, id := range c.lost {
			d.lost[id] = time.Now()
		}
		if got := d.turn(); got != c.waitsFor*turnTime {
			t.Errorf("%+v: it waits for %v, want %v", c, got, c.waitsFor*turnTime)
		}
	}
}
