package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestFlows: the doctor checks files, addresses, devices and owners of a configuration with the
// rights of the daemon's user.
func TestFlows(t *testing.T) {
	testenv.Root(t)
	dir := testenv.DiskDir(t)
	for path := dir; strings.HasPrefix(path, os.TempDir()+"/"); path = filepath.Dir(path) { // so that no other user reaches it
		testenv.Must(t, os.Chmod(path, 0o755))
	}
	image := filepath.Join(dir, "image")
	testenv.Must(t, os.WriteFile(image, []byte("blocks"), 0o600))
	c := config.Default()
	good, bad := config.NewFlowOf(config.KindStorageRDMA, "good"), config.NewFlowOf(config.KindRDMAStorage, "bad")
	good.From.File, good.To.RDMA, good.To.Listen = image, "roce:lo", "127.0.0.1:7471"
	bad.From.RDMA, bad.From.Listen, bad.To.File, bad.To.Owner = "roce:nowhere", "192.0.2.1:7471", filepath.Join(dir, "wal"), "nobody-at-all"
	replay := config.NewFlowOf(config.KindStorageNetwork, "replay")
	replay.From.File, replay.To.Interface = filepath.Join(dir, "none"), "lo"
	watch := config.NewFlow("good watch")
	watch.From.Interface, watch.From.Engine, watch.To.File = "lo", config.EnginePacket, filepath.Join(dir, "watch")
	c.Flows = []config.Flow{good, bad, replay, watch}
	states := func() map[string]Check {
		var r Report
		r.addFlows(newNeeds(Options{Config: c}))
		all := map[string]Check{}
		for _, s := range r.Sections {
			for _, check := range s.Checks {
				all[check.Name] = check
			}
		}
		return all
	}
	for name, words := range map[string]string{
		"flow good watch: from.engine": "a packet socket opens",
		"flow good: from.file":         "is readable", "flow good: to.listen": "can be listened at", "flow good: to.rdma": "is up",
		"flow bad: from.listen": "192.0.2.1", "flow bad: from.rdma": "nowhere", "flow bad: to.owner": "nobody-at-all", "flow replay: from.file": "no such file",
	} {
		check, there := states()[name]
		want := OK
		if !strings.HasPrefix(name, "flow good") {
			want = Fail
		}
		if !there || check.State != want || !strings.Contains(check.Detail, words) {
			t.Errorf("%s: %+v, there: %v", name, check, there)
		}
	}
	if n := newNeeds(Options{Config: c}); len(n.interfaces) != 1 || n.interfaces[0] != "lo" {
		t.Errorf("interfaces: %v", n.interfaces)
	}
	c.User = "nobody"
	if check := states()["flow good: from.file"]; check.State != Fail || !strings.Contains(check.Detail, "permission denied") {
		t.Errorf("as nobody: %+v", check)
	}
}
