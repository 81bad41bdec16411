package card

import (
	"maps"
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestCards: on real drivers each value that is tried is set or refused with a reason, and all is as before afterwards.
func TestCards(t *testing.T) {
	labenv.Guest(t)
	for name, pair := range map[string]func(testing.TB) *testenv.Pair{"igb": labenv.Igb, "virtio_net": labenv.VirtioNet} {
		t.Run(name, func(t *testing.T) {
			p := pair(t)
			p.Carry(t)
			p.B.Do(t, func() { everyValue(t, p.B.Ifname, name) })
		})
	}
}

// everyValue sets one value after the other.
func everyValue(t *testing.T, name, driver string) {
	t.Helper()
	c, err := Find(name)
	testenv.Must(t, err)
	before, absent, err := c.Probe()
	t.Logf("%s of driver %s has %v; absent %+v; %v", name, c.Driver, before, absent, err)
	if err != nil || c.Driver != driver || len(before)+len(absent) != len(order) || before[Affinity] == "" || before[Rings] == "" {
		t.Fatalf("%+v of driver %q, %v", before, c.Driver, err)
	}
	choices, err := c.Choices(before, Processors())
	testenv.Must(t, err)
	set := map[Setting]int{}
	for _, one := range choices {
		for _, value := range one.Others {
			changed, err := c.Set(Settings{one.Setting: value})
			t.Logf("%s %s: changed %v, %v", one.Setting, value, changed, err)
			if err == nil && changed {
				set[one.Setting]++
			}
			testenv.Check(t, c.Settle(t.Context()))
		}
		if _, err := c.Set(before); err != nil {
			t.Errorf("set what was before: %v", err)
		}
	}
	if now, err := c.Read(before); err != nil || !maps.Equal(now, before) {
		t.Errorf("it has %v instead of %v, %v", now, before, err)
	}
	if set[Affinity] == 0 || driver == "igb" && (set[Rings] == 0 || set[Coalescing] == 0 || set[Channels] == 0) {
		t.Errorf("values that were set: %v", set)
	}
}
