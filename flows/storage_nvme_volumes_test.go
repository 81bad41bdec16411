package flows

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestSubsystemGoesOn: a reload changes the namespaces of a running flow to NVMe hosts. If one cannot be
// opened, the flow keeps those it had. TestHostsOnVerbs and package nvmet test the hosts.
func TestSubsystemGoesOn(t *testing.T) {
	l := newLab(t, testenv.PairOptions{MTU: 4200})
	dir := testenv.DiskDir(t)
	for _, name := range []string{"one", "two", "three", "other"} {
		testenv.Must(t, os.WriteFile(filepath.Join(dir, name), make([]byte, 1<<20), 0o600))
	}
	text := func(namespaces string, more ...string) string {
		return fmt.Sprintf(`
region: {size: 64MiB, extents: 16}
flows:
  - name: volume
    from: {file: %s/one}
    to: {rdma: "roce:%s", listen: "%s:4420", subsystem: nqn.2026-01.com.example:volume, allow_any_host: true, clients: 4, window: 32, namespaces: [%s]%s}
`, dir, l.B.Ifname, l.B.IP, namespaces, strings.Join(more, ""))
	}
	two, three := "{id: 2, file: "+dir+"/two}", "{id: 3, file: "+dir+"/three, read_only: true}"
	f := l.start(t, text(two), Options{}).Flows()[0]
	has := func(want ...string) {
		t.Helper()
		var have []string
		testenv.Wait(t, testenv.Within(15*time.Second), "the namespaces", func() bool {
			have = nil
			for _, n := range f.Status().Hosts.Namespaces {
				have = append(have, fmt.Sprintf("%d %s %d %v", n.ID, filepath.Base(n.Path), n.Size, n.ReadOnly))
			}
			return slices.Equal(have, want)
		})
	}
	has("1 one 1048576 false", "2 two 1048576 false")
	if s := l.reloaded(t, text(two+", "+three)); !slices.Equal(s.Plan.Subsystems, []string{"volume"}) {
		t.Errorf("%+v", s.Plan)
	}
	has("1 one 1048576 false", "2 two 1048576 false", "3 three 1048576 true")
	states := func(want ...string) {
		t.Helper()
		var have []string
		for _, n := range f.Status().Hosts.Namespaces {
			have = append(have, n.ANA)
		}
		if !slices.Equal(have, want) {
			t.Errorf("ANA states %q, not %q", have, want)
		}
	}
	states("optimized", "optimized", "optimized")
	away := strings.Replace(three, "}", ", ana: inaccessible}", 1)
	if s := l.reloaded(t, text(two+", "+away, ", ana: non-optimized")); !slices.Equal(s.Plan.Subsystems, []string{"volume"}) {
		t.Errorf("%+v", s.Plan)
	}
	states("non-optimized", "non-optimized", "inaccessible")
	s, err := l.reload(t, text(three+", {id: 4, file: "+dir+"/none}"))
	if s.Outcome != status.RolledBack || err == nil || !strings.Contains(err.Error(), "namespace 4") || !strings.Contains(err.Error(), dir+"/none") {
		t.Errorf("%s: %v", s.Outcome, err)
	}
	has("1 one 1048576 false", "2 two 1048576 false", "3 three 1048576 true")
	states("non-optimized", "non-optimized", "inaccessible")
	l.reloaded(t, text(three))
	states("optimized", "optimized")
	has("1 one 1048576 false", "3 three 1048576 true")
	other := ", subsystems: [{subsystem: nqn.2026-01.com.example:other, allow_any_host: true, namespaces: [{id: 1, file: " + dir + "/other}]}, {subsystem: nqn.2026-01.com.example:none, allow_any_host: true}]"
	if s := l.reloaded(t, text(three, other)); !slices.Equal(s.Plan.Subsystems, []string{"volume"}) {
		t.Errorf("%+v", s.Plan)
	}
	has("1 one 1048576 false", "3 three 1048576 true", "1 other 1048576 false")
	h := f.Status().Hosts
	if want := []string{"nqn.2026-01.com.example:volume", "nqn.2026-01.com.example:other", "nqn.2026-01.com.example:none"}; !slices.Equal(h.Subsystems, want) || h.Namespaces[2].Subsystem != want[1] {
		t.Errorf("it serves %q, and of namespaces %+v", h.Subsystems, h.Namespaces)
	}
	l.reloaded(t, text(three))
	has("1 one 1048576 false", "3 three 1048576 true")
	if n := len(f.Status().Hosts.Subsystems); n != 1 {
		t.Errorf("it serves %d subsystems", n)
	}
	if l.daemon.Flows()[0] != f || f.Status().State != status.Running {
		t.Error("it began anew")
	}
	l.reloaded(t, text("{id: 2, file: "+dir+"/three}")) // not open twice: the flow starts again
	before := f
	if f = l.daemon.Flows()[0]; f == before {
		t.Error("it did not begin anew")
	}
	has("1 one 1048576 false", "2 three 1048576 false")
}

// TestNamespaceGrows: a reload makes the new size of a file that has grown known to hosts, while the flow goes on.
func TestNamespaceGrows(t *testing.T) {
	l := newLab(t, testenv.PairOptions{MTU: 4200})
	path := filepath.Join(testenv.DiskDir(t), "disk")
	testenv.Must(t, os.WriteFile(path, make([]byte, 1<<20), 0o600))
	text := fmt.Sprintf(`
region: {size: 64MiB, extents: 16}
flows:
  - name: volume
    from: {file: %s}
    to: {rdma: "roce:%s", listen: "%s:4420", subsystem: nqn.2026-01.com.example:volume, allow_any_host: true, clients: 4, window: 32}
`, path, l.B.Ifname, l.B.IP)
	f := l.start(t, text, Options{}).Flows()[0]
	if s, err := l.reload(t, text); s.Outcome != status.Unchanged || err != nil {
		t.Errorf("%s: %v", s.Outcome, err)
	}
	testenv.Must(t, os.Truncate(path, 2<<20))
	if s := l.reloaded(t, text); !slices.Equal(s.Plan.Subsystems, []string{"volume"}) || len(s.Plan.Kept) != 0 {
		t.Errorf("%+v", s.Plan)
	}
	if h := f.Status().Hosts; h.Size != 2<<20 || h.Namespaces[0].Size != 2<<20 || l.daemon.Flows()[0] != f {
		t.Errorf("it serves %d bytes, or began anew", h.Size)
	}
	if s, err := l.reload(t, text); s.Outcome != status.Unchanged || err != nil {
		t.Errorf("%s: %v", s.Outcome, err)
	}
}

// TestOneDiskOneName: a disk with reservations is one namespace of one subsystem, with one file, wherever it is served.
func TestOneDiskOneName(t *testing.T) {
	l := newLab(t, testenv.PairOptions{MTU: 4200})
	dir := testenv.DiskDir(t)
	testenv.Must(t, os.WriteFile(filepath.Join(dir, "disk"), make([]byte, 1<<20), 0o600))
	testenv.Must(t, os.Link(filepath.Join(dir, "disk"), filepath.Join(dir, "link")))
	flow := func(name string, port int, file, subsystem, more string) string {
		return fmt.Sprintf(`
  - name: %s
    from: {file: %s/%s}
    to: {rdma: "roce:%s", listen: "%s:%d", subsystem: nqn.2026-01.com.example:%s, allow_any_host: true, clients: 4, window: 32, controllers: %d-%d%s}`,
			name, dir, file, l.B.Ifname, l.B.IP, port, subsystem, port, port+9, more)
	}
	const begin = "region: {size: 64MiB, extents: 32}\nflows:"
	held := ", reservations: " + dir + "/held"
	volume := flow("volume", 4420, "disk", "volume", held)
	f := l.start(t, begin+volume, Options{}).Flows()[0]
	for why, text := range map[string]string{
		"another number":              flow("volume", 4420, "disk", "volume", held+", namespaces: [{id: 2, file: "+dir+"/link}]"),
		"another subsystem":           volume + flow("second", 4440, "link", "second", held),
		"another file":                volume + flow("second", 4440, "link", "volume", held+"2"),
		"no reservations":             volume + flow("second", 4440, "link", "volume", ""),
		"another subsystem, and none": volume + flow("second", 4440, "link", "second", ""),
	} {
		s, err := l.reload(t, begin+text)
		if s.Outcome != status.RolledBack || err == nil || !strings.Contains(err.Error(), "as another namespace") || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %s: %v", why, s.Outcome, err)
		}
	}
	if l.daemon.Flows()[0] != f || f.Status().State != status.Running {
		t.Error("the first flow began anew")
	}
}
