package group

import (
	"log/slog"
	"testing"

	"github.com/unifiedd/unifiedd/flows/group/election"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// threeMembers are members of one group, whose messages arrive at once.
type threeMembers map[uint32]*Member

// newThree makes members whose logs end at these positions of epoch 1.
func newThree(t *testing.T, ends [3]uint64) threeMembers {
	all := threeMembers{}
	for i, end := range ends {
		l := Log{End: Place{1, end}, Table: Table{{1, 1}}}
		id := uint32(i + 1)
		m, err := NewMember(MemberConfig{Self: id, State: election.First([]uint32{1, 2, 3}), Log: func() Log { return l }, Serial: uint64(id) << 32, Logger: slog.New(slog.DiscardHandler)})
		testenv.Must(t, err)
		all[id] = m
	}
	return all
}

// settle delivers messages until there are none.
func (all threeMembers) settle(t *testing.T) {
	for round := 0; ; round++ {
		var sent []Message
		for id := range uint32(3) {
			sent = append(sent, handle(all[id+1])...)
		}
		if len(sent) == 0 {
			return
		}
		if round == 100 {
			t.Fatal("the members do not come to rest")
		}
		for _, one := range sent {
			testenv.Must(t, all[one.To].Step(one))
		}
	}
}

// TestFetchFails: a leader that cannot get the records that it lacks hands over to the member that has them.
func TestFetchFails(t *testing.T) {
	all := newThree(t, [3]uint64{5, 9, 8})
	for range maxPassed + 1 { // the others prefer a longer log at first
		testenv.Must(t, all[1].Suspect())
		all.settle(t)
	}
	if m := all[1]; m.Phase() != Fetching || m.from != 2 {
		t.Fatalf("member 1 is %v, from member %d", m.Phase(), m.from)
	}
	before := all[1].Epoch()
	all[1].FetchFailed(before)
	all.settle(t)
	if m := all[2]; m.Leader() != 2 || m.Phase() != Beginning || m.Epoch() <= before {
		t.Errorf("member 2 is %v in epoch %d, and its leader is %d", m.Phase(), m.Epoch(), m.Leader())
	}
}
