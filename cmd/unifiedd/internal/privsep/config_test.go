package privsep

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/files"
	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/config"
)

func TestFor(t *testing.T) {
	c := config.Default()
	c.User = "capture"
	c.Flows = []config.Flow{config.NewFlow("file"), config.NewFlow("device")}
	c.Flows[0].To.File, c.Flows[1].To.Device = "/data/cap/one", "/dev/nvme0n1"
	want := Options{
		User: "capture", Keep: Needed,
		Dirs: []string{"/run/unifiedd", "/data/cap"}, Sockets: []string{"/run/unifiedd/control.sock"}, Steering: "/run/unifiedd",
		Files: []files.File{{Setting: "flow device: to.device", Path: "/dev/nvme0n1", Write: true}},
	}
	if diff := cmp.Diff(want, For(c)); diff != "" {
		t.Errorf("what it needs (-want +got):\n%s", diff)
	}
	c.Flows[0].From.Beside = config.BesideLibxdp
	if got := For(c); got.Keep != Needed|Joining || !got.Joins {
		t.Errorf("beside other XDP programs it needs %+v", got)
	}
	c.Region.Reserve = true
	if got, want := For(c).Region, flows.RegionConfig(c); got == nil || !cmp.Equal(*got, want) {
		t.Errorf("to reserve: %+v, want %+v", got, want)
	}
	c.Region.Pages = config.PagesOrdinary
	if got := For(c).Region; got != nil {
		t.Errorf("to reserve of ordinary pages: %+v", got)
	}
}
