package device

import (
	"errors"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestFanouts: the first socket of a name founds a group, the others join it, and the name is free again when the
// last has left. A socket that cannot join is no member.
func TestFanouts(t *testing.T) {
	var o Fanouts
	type call struct {
		id     uint16
		exists bool
	}
	var calls []call
	join := func(name string, id uint16, fails error) error {
		return o.Join(name, func(number uint16, exists bool) (uint16, error) {
			calls = append(calls, call{number, exists})
			return id, fails
		})
	}
	broken := errors.New("broken")
	if err := join("a", 1, broken); !errors.Is(err, broken) {
		t.Error(err)
	}
	left := 0
	leave := func() error { left++; return nil }
	for _, err := range []error{join("a", 7, nil), join("a", 7, nil), join("b", 8, nil), o.Leave("a", leave), join("a", 7, nil),
		o.Leave("a", leave), o.Leave("a", leave), join("a", 9, nil), o.Leave("a", leave), o.Leave("b", leave)} {
		testenv.Check(t, err)
	}
	want := []call{{0, false}, {0, false}, {7, true}, {0, false}, {7, true}, {0, false}}
	for i := range want {
		if calls[i] != want[i] {
			t.Errorf("call %d: %+v, want %+v", i, calls[i], want[i])
		}
	}
	if len(o.all) != 0 || left != 5 {
		t.Errorf("%d groups are left, %d sockets have left", len(o.all), left)
	}
}
