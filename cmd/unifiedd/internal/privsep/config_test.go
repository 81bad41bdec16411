package privsep

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/files"
	"github.com/unifiedd/unifiedd/flows"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/caps"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

func TestFor(t *testing.T) {
	c := config.Default()
	c.User, c.Region.Reserve = "capture", false
	c.Flows = []config.Flow{config.NewFlow("file"), config.NewFlow("device")}
	c.Flows[0].To.File, c.Flows[1].To.Device = "/data/cap/one", "/dev/nvme0n1"
	want := Options{
		User: "capture", Keep: Needed,
		Dirs: []string{"/run/unifiedd"}, Existing: []string{"/data/cap"}, Sockets: []string{"/run/unifiedd/control.sock"}, Steering: "/run/unifiedd",
		Files: []files.File{{Setting: "flow device: to.device", Path: "/dev/nvme0n1", Write: true}},
	}
	if diff := cmp.Diff(want, For(c)); diff != "" {
		t.Errorf("what it needs (-want +got):\n%s", diff)
	}
	c.Flows[0].To.Create = true
	if got := For(c); !cmp.Equal(got.Dirs, []string{"/run/unifiedd", "/data/cap"}) || got.Existing != nil {
		t.Errorf("with to.create it makes %v, and needs %v", got.Dirs, got.Existing)
	}
	c.Flows[0].From.Beside = config.BesideLibxdp
	if got := For(c); got.Keep != Needed|Joining || !got.Joins {
		t.Errorf("beside other XDP programs it needs %+v", got)
	}
	c.Region.Reserve = true
	if got, want := For(c).Region, flows.RegionConfig(c); got == nil || !cmp.Equal(*got, want) {
		t.Errorf("to reserve: %+v, want %+v", got, want)
	}
	c.Region.Reserve, c.Region.Device = false, "/dev/dax0.0"
	if got := For(c); got.Region == nil || got.Region.Device != "/dev/dax0.0" || !got.Free {
		t.Errorf("on a device: %+v", got)
	}
	c.Region.Reserve, c.Region.Device = true, ""
	c.Region.Pages = config.PagesOrdinary
	if got := For(c).Region; got != nil {
		t.Errorf("to reserve of ordinary pages: %+v", got)
	}
}

// TestNeededByPacketSockets: flows with packet sockets alone get NET_RAW, and IPC_LOCK only where the limit of
// locked memory may not be raised. Any other flow brings its own needs.
func TestNeededByPacketSockets(t *testing.T) {
	one := config.NewFlow("a")
	one.From.Interface, one.From.Engine, one.From.Buffer, one.To.File = "e0", config.EnginePacket, 64*config.MiB, "/f"
	c := config.Default()
	c.Flows = []config.Flow{one}
	if got := needed(c); got.Minus(caps.NetRaw|caps.IPCLock) != 0 || !got.Has(caps.NetRaw) {
		t.Errorf("a packet socket gets %v", got)
	}
	var l unix.Rlimit
	testenv.Must(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l))
	if self, err := caps.Self(); err != nil || (needed(c) == caps.NetRaw) != (self.Effective.Has(caps.SysResource) || l.Max >= uint64(c.Region.Size+one.From.Buffer)+lockedBeside) {
		t.Errorf("%v with a limit of %d: %v", needed(c), l.Max, err)
	}
	for engine, all := range map[config.Engine]bool{config.EngineAuto: false, config.EngineXDP: true} {
		c.Flows = append(c.Flows[:1], one)
		c.Flows[1].From.Engine = engine
		if got := needed(c); (got == Needed) != all {
			t.Errorf("engine %s beside it: %v", engine, got)
		}
	}
	c.Flows[1].From.Engine, c.Flows[1].From.Timestamps = config.EnginePacket, config.TimestampsPrefer
	if got := needed(c); !got.Has(caps.NetRaw | caps.NetAdmin) {
		t.Errorf("with times of the card's clock: %v", got)
	}
	c.Flows[1].From.Engine, c.Flows[1].From.TakeOver = config.EngineAuto, true // it may take packets
	if got := needed(c); got != Needed {
		t.Errorf("engine auto that may take packets: %v", got)
	}
}
