package doctor

import (
	"errors"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/privsep"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/cgroup"
)

// TestGroupLimits: quotas and limits of huge pages that are too small are named, with their files.
func TestGroupLimits(t *testing.T) {
	none := func(uint64) (cgroup.Limit, bool) { return cgroup.Limit{}, false }
	unlimited := func() (cgroup.Limit, bool) { return cgroup.Limit{}, false }
	spinning := config.Default()
	spinning.Workers[0].Wait = config.WaitSpin
	for _, c := range []struct {
		name  string
		with  *config.Config
		cpus  float64
		left  int64 // MiB; negative: no limit
		state State
		says  string
	}{
		{"a quota for one CPU, and a worker that spins", spinning, 1, -1, Warn, "stand still"},
		{"a quota for two", spinning, 2, -1, OK, "2 CPUs"},
		{"half a CPU", config.Default(), 0.5, -1, Warn, "0.5 CPUs"},
		{"one CPU, and a worker that sleeps", config.Default(), 1, -1, OK, "1 CPUs"},
		{"too few huge pages", config.Default(), 0, 100, Fail, "50 more may be taken, 129 needed"},
		{"enough", config.Default(), 0, 258, OK, "129 more may be taken, 129 needed"},
	} {
		n := newNeeds(Options{Config: c.with})
		cpus, pages := unlimited, none
		if c.cpus > 0 {
			cpus = func() (cgroup.Limit, bool) { return cgroup.Limit{File: "/g/cpu.max", CPUs: c.cpus}, true }
		}
		if c.left >= 0 {
			pages = func(uint64) (cgroup.Limit, bool) {
				return cgroup.Limit{File: "/g/hugetlb.2MB.max", Left: uint64(c.left) << 20}, true
			}
		}
		got := n.groupLimits(cpus, pages)
		if len(got) != 1 || got[0].State != c.state || !strings.Contains(got[0].Detail, c.says) || (c.state != OK) != (got[0].Remedy != "") {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	if got := newNeeds(Options{}).groupLimits(unlimited, none); len(got) != 0 {
		t.Errorf("without limits: %+v", got)
	}
}

// TestHostNetwork: a container with nothing but the links that its manager made has no cards.
func TestHostNetwork(t *testing.T) {
	lo := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "lo", EncapType: "loopback"}}
	eth := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "eth1", EncapType: "ether"}}
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0", EncapType: "ether"}}
	for _, c := range []struct {
		links []netlink.Link
		err   error
		state State
		says  string
	}{
		{[]netlink.Link{lo}, nil, OK, "of its own (lo)"},
		{[]netlink.Link{lo, veth}, nil, OK, "of its own (eth0, lo)"},
		{[]netlink.Link{lo, veth, eth}, nil, OK, "such as eth1"},
		{nil, errors.New("no netlink"), Unknown, "no netlink"},
	} {
		if got := hostNetwork(c.links, c.err); got.State != c.state || !strings.Contains(got.Detail, c.says) {
			t.Errorf("%+v", got)
		}
	}
}

// TestGrant: in a container capabilities are given by options of its manager.
func TestGrant(t *testing.T) {
	t.Setenv("container", "oci")
	if got := grant(privsep.Needed); !strings.Contains(got, "--cap-add NET_ADMIN --cap-add NET_RAW") || strings.Contains(got, "CAP_") {
		t.Error(got)
	}
	if c := container(); !strings.HasPrefix(c.Detail, "yes, by ") {
		t.Errorf("%+v", c)
	}
}
