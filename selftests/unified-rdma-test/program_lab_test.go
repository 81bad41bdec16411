package main

import (
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// TestStorage: messages go over RDMA to the NVMe disk and back, and every byte is correct.
func TestStorage(t *testing.T) {
	labenv.Guest(t)
	cases := []string{"-size 4096 -n 40 -depth 8"}
	if !testing.Short() {
		cases = append(cases, "-n 100", "-size 1048576 -n 20 -depth 4", "-size 65536 -n 1 -json")
	}
	storage(t, newPlace(t), labenv.Disk, cases)
}

// TestMatrix: every operation of every transport works in each size, and a request beyond the
// limits is refused.
func TestMatrix(t *testing.T) {
	labenv.Guest(t)
	wholeMatrix(t, newPlace(t))
}

func TestMeasured(t *testing.T) {
	labenv.Guest(t)
	measured(t, newPlace(t))
}

func TestServerGoesOn(t *testing.T) {
	labenv.Guest(t)
	serverGoesOn(t, newPlace(t))
}

// TestRefused: the program reports what cannot work, and what to check.
func TestRefused(t *testing.T) {
	labenv.Guest(t)
	p := newPlace(t)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no such interface": {[]string{"none0", p.device, noDisk, p.server}, "(see: ip link)"},
		"wrong interface":   {[]string{"virtio1", p.device, noDisk, p.server}, "is a device of virtio0, not of IFACE virtio1"},
		"interface down":    {[]string{"igb0", p.device, noDisk, p.server}, "ip link set igb0 up"},
		"no such device":    {[]string{p.card, "rxe9", noDisk, p.server}, p.device},
		"no server":         {p.asClient("-timeout 2s"), "connection refused"},
		"no such GID":       {p.asClient("-gid 200"), "-gid 200"},
		"MTU":               {p.asClient("-mtu 1500"), "256, 512, 1024, 2048 or 4096"},
		"long datagram":     {p.asClient("-test verify -transport UD -size 1025"), rdma.LocalLength.String()},
	} {
		if status, out, errs := p.askFor(t, c.args...); status != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: status %d, %q does not say %q; %s", name, status, errs, c.want, out)
		}
	}
}
