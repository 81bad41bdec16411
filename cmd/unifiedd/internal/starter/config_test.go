package starter

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/umem"
)

func TestFor(t *testing.T) {
	c := config.Default()
	c.User = "capture"
	c.Flows = []config.Flow{config.NewFlow("file"), config.NewFlow("device")}
	c.Flows[0].To.File, c.Flows[1].To.Device = "/data/cap/one", "/dev/nvme0n1"
	want := Options{
		User: "capture", Keep: Needed,
		Dirs: []string{"/run/unifiedd", "/data/cap"}, Sockets: []string{"/run/unifiedd/control.sock"},
	}
	if diff := cmp.Diff(want, For(c)); diff != "" {
		t.Errorf("what it needs (-want +got):\n%s", diff)
	}
	c.Region.Reserve = true
	if got := For(c).Pages; !cmp.Equal(got, PagesFor(c.Region)) || len(got) == 0 {
		t.Errorf("to reserve: %+v", got)
	}
}

func TestPagesFor(t *testing.T) {
	node := 1
	for _, test := range []struct {
		pages config.Pages
		node  *int
		want  []Pages
	}{
		{config.Pages2MiB, nil, []Pages{{umem.Huge2M, -1, 258 << 20}}},
		{config.Pages1GiB, &node, []Pages{{umem.Huge1G, 1, 256 << 20}, {umem.Huge2M, 1, 2 << 20}}},
		{config.PagesOrdinary, nil, nil},
	} {
		r := config.Default().Region
		r.Pages, r.Node = test.pages, test.node
		if diff := cmp.Diff(test.want, PagesFor(r)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.pages, diff)
		}
	}
}
