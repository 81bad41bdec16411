package xdp

import (
	"errors"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// refusedCase is a request for zero copy that must be refused.
type refusedCase struct {
	name   string
	mtu    string
	region umem.Config
	config Config
	says   []string // words of the error
}

// TestRequireRefused: if a card, kernel, MTU or mode does not allow required zero copy, the error
// says what, why and what to do. The card is unchanged afterwards.
func TestRequireRefused(t *testing.T) {
	labenv.Guest(t)
	whole := umem.Config{Size: 8 << 20}
	half := umem.Config{Size: 8 << 20, FrameSize: 2048}
	many := umem.Shape{MultiBuffer: true}
	cases := []refusedCase{
		{"an MTU longer than frames", "1500", half, Config{Shape: umem.Shape{Headroom: 1024}}, []string{"lower the MTU to 746 or less"}},
		{"an MTU that takes several frames", "1800", half, Config{Shape: many}, []string{"multi-buffer", "lower the MTU to 1770 or less"}},
		{"an MTU that the driver takes no program at", "9000", whole, Config{Shape: many}, []string{"MTU"}},
		{"generic mode", "1500", whole, Config{Mode: bpf.Generic}, []string{"generic mode"}},
	}
	cards := []func(testing.TB) *testenv.Pair{labenv.VirtioNet, labenv.Igb}
	if testing.Short() {
		cases, cards = cases[1:2], cards[:1]
	}
	for _, take := range cards {
		e := &take(t).B
		for _, c := range cases {
			t.Run(e.Ifname+" "+c.name, func(t *testing.T) { c.refused(t, e) })
		}
		e.Run(t, "ip", "link", "set", e.Ifname, "mtu", "1500")
		if !grants(t, e.Ifname) {
			plain := refusedCase{"", "1500", whole, Config{}, nil}
			t.Run(e.Ifname, func(t *testing.T) { plain.refused(t, e) })
		}
	}
}

func (c refusedCase) refused(t *testing.T, e *testenv.End) {
	e.Run(t, "ip", "link", "set", e.Ifname, "mtu", c.mtu)
	g := newRig(t, c.region)
	stripped := strips(t, e)
	config := c.config
	config.Policy, config.Promiscuous = Require, true
	i, err := g.tryOpen(e, config)
	if err == nil {
		defer i.Close()
		t.Fatalf("granted: %+v", i.Granted())
	}
	t.Log(err)
	if !errors.Is(err, ErrNoZeroCopy) {
		t.Errorf("the error does not match ErrNoZeroCopy")
	}
	for _, word := range append([]string{e.Ifname, "zero copy", "("}, c.says...) {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not say %q", word)
		}
	}
	untouched(t, e, stripped)
	if names := g.region.Registered(); len(names) > 0 {
		t.Errorf("registered: %v", names)
	}
	config.Policy = Copy // the refused attempt has released everything
	if i, err = g.tryOpen(e, config); err != nil {
		t.Errorf("open with copy: %v", err)
		return
	}
	testenv.Check(t, i.Close())
	untouched(t, e, stripped)
}
