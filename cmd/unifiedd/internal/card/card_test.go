package card

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/caps"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestVeth: of a veth pair the number of queues can be changed, and ethtool shows it; the other settings are absent.
func TestVeth(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{Queues: 2})
	p.B.Do(t, func() {
		c, err := Find(p.B.Ifname)
		testenv.Must(t, err)
		before, absent, err := c.Probe()
		if err != nil || !maps.Equal(before, Settings{Channels: "rx 2"}) || c.Driver != "veth" {
			t.Fatalf("driver %s has %v, %v", c.Driver, before, err)
		}
		for i, want := range []string{"the driver veth has no such setting", "the driver veth has no such setting", "no interrupts of its own"} {
			if len(absent) != 3 || absent[i].Setting != order[i+1] || !strings.Contains(absent[i].Why, want) {
				t.Errorf("absent are %+v, want %q", absent, want)
			}
		}
		all, err := c.Choices(before, Processors())
		if err != nil || len(all) != 1 || all[0].Now != "rx 2" || !slices.Equal(all[0].Others, []string{"rx 1"}) {
			t.Errorf("to try are %+v, %v", all, err)
		}
		one := Settings{Channels: "rx 1"}
		if changed, err := c.Set(one); !changed || err != nil || c.Settle(t.Context()) != nil {
			t.Errorf("set: changed %v, %v", changed, err)
		}
		if changed, err := c.Set(one); changed || err != nil {
			t.Errorf("set again: changed %v, %v", changed, err)
		}
		if err := c.Verify(before); !errors.Is(err, ErrOther) {
			t.Errorf("verify finds %v", err)
		}
	})
	if said := p.B.Run(t, testenv.Tool(t, "ethtool"), "-l", p.B.Ifname); !strings.Contains(said[strings.Index(said, "Current"):], "RX:\t\t1") {
		t.Errorf("ethtool says %s", said)
	}
}

// TestRefused: errors of values that a card has not, of words and of settings say so, and leave the card alone.
func TestRefused(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{Queues: 2})
	p.B.Do(t, func() {
		c, err := Find(p.B.Ifname)
		testenv.Must(t, err)
		for want, s := range map[string]Settings{
			"refuses this value":              {Channels: "rx 3"},
			`"tx" is no word`:                 {Channels: "tx 1"},
			"each word needs":                 {Channels: "rx"},
			"invalid syntax":                  {Channels: "rx many"},
			"has no such setting":             {Rings: "rx 1024"},
			"interrupts of its own":           {Affinity: "0"},
			"read ethtool -C":                 {Coalescing: "rx-usecs 3"},
			"set ethtool -G of " + p.B.Ifname: {Rings: "rx 9", Channels: "rx 2"},
		} {
			_, err := c.Set(s)
			if strings.HasPrefix(want, "read") {
				_, err = c.Read(s)
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v, want %q", s, err, want)
			}
		}
		testenv.Check(t, c.Verify(Settings{Channels: "rx 2"}))
	})
	if _, err := Find("no-such-card"); err == nil || !strings.Contains(err.Error(), "no-such-card") {
		t.Errorf("an interface that does not exist: %v", err)
	}
}

// TestRights: without CAP_NET_ADMIN nothing is changed, and the error says what is missing.
func TestRights(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{Queues: 2})
	p.B.Do(t, func() {
		c, err := Find(p.B.Ifname)
		testenv.Must(t, err)
		effective(t, func(now uint32) uint32 { return now &^ uint32(caps.NetAdmin) })
		defer effective(t, func(now uint32) uint32 { return now | uint32(caps.NetAdmin) })
		if _, _, err = c.Probe(); !errors.Is(err, ErrRights) || !strings.Contains(err.Error(), p.B.Ifname) {
			t.Errorf("without CAP_NET_ADMIN: %v", err)
		}
	})
}

// TestSettle: the wait for a link that does not come back ends, and one that is interrupted at once.
func TestSettle(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	p.B.Do(t, func() {
		c, err := Find(p.B.Ifname)
		testenv.Must(t, err)
		p.A.Run(t, "ip", "link", "set", p.A.Ifname, "down")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Settle(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted: %v", err)
		}
		down, err := Find(p.B.Ifname)
		if err != nil || down.Settle(ctx) != nil { // it had no link
			t.Errorf("without a link before: %v", err)
		}
	})
}

// TestTexts: values that are the present one, or that another one is, are tried once.
func TestTexts(t *testing.T) {
	if got := texts(param{word: "rx"}, 256, 256, 4096, 4096, 0, 512); !slices.Equal(got, []string{"rx 4096", "rx 512"}) {
		t.Errorf("to try are %q", got)
	}
	var set unix.CPUSet
	testenv.Must(t, unix.SchedGetaffinity(0, &set))
	if got := Processors(); len(got) != min(2, set.Count()) || !set.IsSet(got[0]) || !set.IsSet(got[len(got)-1]) {
		t.Errorf("processors are %v", got)
	}
}

// effective changes the effective capabilities of the thread.
func effective(t *testing.T, change func(uint32) uint32) {
	t.Helper()
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err := unix.Capget(&h, &data[0])
	if data[0].Effective = change(data[0].Effective); err == nil {
		err = unix.Capset(&h, &data[0])
	}
	testenv.Must(t, err)
}
