package flows

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/captures"
	"github.com/unifiedd/unifiedd/umem"
)

// reload reloads the lab's daemon with another configuration, in end B's namespace.
func (l *lab) reload(t *testing.T, text string) (s status.Reload, err error) {
	t.Helper()
	l.B.Do(t, func() {
		s, err = l.daemon.Reload(func(running *config.Config) (*config.Config, error) {
			return config.Parse("test.yaml", []byte(text), config.Options{Running: running})
		})
	})
	return s, err
}

// reloaded is reload, which must succeed.
func (l *lab) reloaded(t *testing.T, text string) status.Reload {
	t.Helper()
	s, err := l.reload(t, text)
	if err != nil || s.Outcome != status.Applied || s.Error != "" {
		t.Fatalf("reload: %v, %+v", err, s)
	}
	return s
}

// sides makes veth pairs inside end B's namespace. Each has a name, and the name of its second end has an x
// appended.
func (l *lab) sides(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		l.B.Run(t, "ip", "link", "add", name, "type", "veth", "peer", "name", name+"x")
		l.B.Run(t, "ip", "link", "set", name, "up")
		l.B.Run(t, "ip", "link", "set", name+"x", "up")
	}
}

// captures returns a configuration with the lab's capture, which is always the same, and with other flows.
// Each of these has a name, an interface, and further settings of its segments and its sink.
func (l *lab) captures(others ...[3]string) string {
	text := fmt.Sprintf(`
region: {size: 96MiB, extents: 16}
flows:
  - name: cap
    from: {interface: %s, ring: 1024}
    to: {file: %s/cap, segment: {size: 32MiB}, flush: 20ms, durable: 50ms}
`, l.B.Ifname, l.dir)
	for _, o := range others {
		text += fmt.Sprintf("  - {name: %s, from: {interface: %s, ring: 64}, to: {file: %s/%[1]s, segment: {size: 1MiB}%[4]s}}\n", o[0], o[1], l.dir, o[2])
	}
	return text
}

// TestReload adds, changes and removes flows while a capture continues unchanged. The capture had all extents
// of the region, and gives back those in the quotas of the other flows.
func TestReload(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	l.sides(t, "one", "two")
	d := l.start(t, l.captures(), Options{})
	kept := d.Flows()[0]
	stream := testenv.Stream(&l.A, &l.B, 5000, 0, 600, 300)
	since := kept.Status().Since
	steps := []struct {
		text                          string
		kept, changed, added, removed int
	}{
		{l.captures([3]string{"a", "one"}), 1, 0, 1, 0},
		{l.captures([3]string{"b", "two"}, [3]string{"a", "one", ", flush: 100ms"}), 1, 1, 1, 0},
		{l.captures([3]string{"b", "one"}, [3]string{"c", "two"}), 1, 1, 1, 1}, // b, c: interfaces of others
		{l.captures(), 1, 0, 0, 2},
	}
	for i, step := range steps {
		l.feed(t, kept, stream[i*100:(i+1)*100], 0)
		s := l.reloaded(t, step.text)
		if p := s.Plan; len(p.Kept) != step.kept || len(p.Changed) != step.changed || len(p.Added) != step.added || len(p.Removed) != step.removed || s.Generation != uint64(i+2) {
			t.Errorf("step %d: %+v", i, s)
		}
		if n := len(d.Flows()); n != step.kept+step.changed+step.added {
			t.Errorf("step %d: %d flows", i, n)
		}
		for _, f := range d.Flows() {
			if st := f.Status(); !st.State.Up() {
				t.Errorf("step %d: %+v", i, st)
			}
		}
	}
	l.feed(t, kept, stream[400:], 0)
	await(t, kept, "the capture to have everything", func(s status.Flow) bool { return s.Durable.Packets == 600 })
	if f := d.Flows()[0]; f != kept || !f.Status().Since.Equal(since) {
		t.Error("the capture that did not change began anew")
	}
	testenv.Must(t, kept.Stop())
	samePackets(t, "the capture", captures.Packets(t, l.files(t)...), stream)
}

// TestReloadRefused: a configuration that cannot be loaded changes nothing, and is counted.
func TestReloadRefused(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	d := l.start(t, l.captures(), Options{})
	flow := d.Flows()[0]
	since := flow.Status().Since
	for _, c := range []struct{ text, want string }{
		{"flows: [", "test.yaml:1:1: not YAML"},
		{strings.Replace(l.captures(), "96MiB", "98MiB", 1), "test.yaml:2:16: region.size: cannot change while the daemon runs, with 96MiB"},
	} {
		if s, err := l.reload(t, c.text); err == nil || s.Outcome != status.Refused || !strings.Contains(s.Error, c.want) {
			t.Errorf("%v, %+v", err, s)
		}
	}
	if s, err := l.reload(t, l.captures()); err != nil || s.Outcome != status.Unchanged || s.Generation != 1 {
		t.Errorf("%v, %+v", err, s)
	}
	if d.Flows()[0] != flow || !flow.Status().Since.Equal(since) {
		t.Error("the flow is another")
	}
	if s := d.Status().Config; s.Generation != 1 || s.Reloads[status.Refused] != 2 || s.Reloads[status.Unchanged] != 1 || s.Last.Outcome != status.Unchanged || !s.Succeeded.After(s.Loaded) {
		t.Errorf("%+v", s)
	}
}

// TestReloadRollsBack: if a flow cannot be opened, the whole change is rolled back. Flows that had stopped
// run again, and flows that were not to change are not affected.
func TestReloadRollsBack(t *testing.T) {
	l := newRDMALab(t)
	l.sides(t, "one", "two")
	var taken net.Listener
	l.B.Do(t, func() {
		var err error
		taken, err = net.Listen("tcp", l.address())
		testenv.Must(t, err)
	})
	defer taken.Close()
	loop := testenv.Loop(t, testenv.DiskFile(t, 4<<20), 0)
	busy, err := os.OpenFile(loop, os.O_RDWR|os.O_EXCL, 0)
	testenv.Must(t, err)
	defer busy.Close()
	before := l.captures([3]string{"a", "one"}, [3]string{"b", "two"})
	d := l.start(t, before, Options{})
	kept, a, b := d.Flows()[0], d.Flows()[1], d.Flows()[2]
	since := kept.Status().Since
	frames := d.Region().Snapshot().Of(umem.OwnerPool)
	changed := l.captures([3]string{"a", "one", ", flush: 100ms"}) // without b
	for _, c := range []struct{ what, flow, want string }{
		{"an interface that is gone", "{name: c, from: {interface: gone}, to: {file: %s/c}}", "gone"},
		{"a port in use", "{name: c, from: {rdma: \"roce:two\", listen: \"" + l.address() + "\"}, to: {file: %s/c}}", "address already in use"},
		{"a disk that is busy", "{name: c, from: {interface: two, ring: 64}, to: {device: " + loop + ", segment: {size: 1MiB}}}", loop},
		{"more memory than there is", "{name: c, from: {interface: two, ring: 32768}, to: {file: %s/c}}", "raise region.size"},
	} {
		if testing.Short() && strings.Contains(c.flow, loop) {
			continue // the flow waits five seconds for it
		}
		text := changed + "  - " + strings.ReplaceAll(c.flow, "%s", l.dir) + "\n"
		s, err := l.reload(t, text)
		if err == nil || s.Outcome != status.RolledBack || !strings.Contains(s.Error, c.want) || !strings.Contains(s.Error, "start flow c: ") {
			t.Errorf("%s: %v, %+v", c.what, err, s)
		}
		if got := d.Flows(); len(got) != 3 || got[0] != kept || got[1] != a || got[2] != b || !kept.Status().Since.Equal(since) {
			t.Fatalf("%s: the flows are others: %v", c.what, got)
		}
		for _, f := range d.Flows() {
			await(t, f, "it to run again", func(s status.Flow) bool { return s.State == status.Running })
		}
		testenv.Wait(t, 5*time.Second, "the frames to be with those who had them", func() bool { return d.Region().Snapshot().Of(umem.OwnerPool) == frames })
	}
	if s := d.Status().Config; s.Generation != 1 || s.Reloads[status.RolledBack] < 3 || s.Last.Outcome != status.RolledBack {
		t.Errorf("%+v", s)
	}
	l.reloaded(t, changed)
}

// TestReloadBroken: if the rollback fails, too, the error says so, and the flows that can run do.
func TestReloadBroken(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	l.sides(t, "one", "two")
	old := filepath.Join(l.dir, "sub")
	testenv.Must(t, os.Mkdir(old, 0o700))
	text := l.captures([3]string{"b", "two"}) + fmt.Sprintf("  - {name: a, from: {interface: one, ring: 64}, to: {file: %s/a, segment: {size: 1MiB}}}\n", old)
	d := l.start(t, text, Options{})
	var s status.Reload
	var err error
	l.B.Do(t, func() {
		s, err = d.Reload(func(*config.Config) (*config.Config, error) {
			testenv.Must(t, os.Rename(old, old+"-gone"))
			return l.parsed(t, strings.Replace(text, "interface: one", "interface: gone", 1)), nil
		})
	})
	if err == nil || s.Outcome != status.Broken || !strings.Contains(s.Error, "gone") || !strings.Contains(s.Error, old) {
		t.Errorf("%v, %+v", err, s)
	}
	var states []status.State
	for _, f := range d.Flows() {
		states = append(states, f.Status().State)
	}
	if !slices.Equal(states, []status.State{status.Running, status.Running, status.Failed}) {
		t.Errorf("the flows are %v", states)
	}
	if n := d.Status().Config.Reloads[status.Broken]; n != 1 {
		t.Errorf("%d are counted", n)
	}
}

// TestReloadOneAtATime: a reload during another reload changes nothing.
func TestReloadOneAtATime(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	d := l.start(t, l.captures(), Options{})
	_, _ = d.Reload(func(running *config.Config) (*config.Config, error) {
		if s := d.Status().Config; s.Since == nil {
			t.Error("the status does not say that a reload is under way")
		}
		s, err := d.Reload(func(*config.Config) (*config.Config, error) { t.Error("it is loaded"); return nil, nil })
		if !errors.Is(err, ErrReloading) || s.Outcome != status.Busy {
			t.Errorf("a reload within a reload: %v, %+v", err, s)
		}
		return running, nil
	})
	if s := d.Status().Config; s.Since != nil || s.Reloads[status.Busy] != 1 || s.Reloads[status.Unchanged] != 1 {
		t.Errorf("%+v", s)
	}
}

// TestReloadWhileClosing: a daemon that closes starts no more flows of a reload, and refuses later reloads.
func TestReloadWhileClosing(t *testing.T) {
	l := newLab(t, testenv.PairOptions{NoAddresses: true})
	l.sides(t, "one")
	d := l.start(t, l.captures(), Options{})
	closed := make(chan error, 1)
	var s status.Reload
	var err error
	l.B.Do(t, func() {
		s, err = d.Reload(func(*config.Config) (*config.Config, error) {
			go func() { closed <- d.Close() }()
			await(t, d.Flows()[0], "the daemon to stop its flows", func(s status.Flow) bool { return s.State == status.Stopped })
			return l.parsed(t, l.captures([3]string{"a", "one"})), nil
		})
	})
	if !errors.Is(err, errClosing) || s.Outcome != status.RolledBack {
		t.Errorf("%v, %+v", err, s)
	}
	testenv.Check(t, <-closed)
	if s, err := l.reload(t, l.captures()); !errors.Is(err, errClosing) || s.Outcome != status.Refused {
		t.Errorf("after the end: %v, %+v", err, s)
	}
}

// TestReloadMakesRoom: flows that had the whole region, since there were no others, give back what a new flow
// needs, and continue.
func TestReloadMakesRoom(t *testing.T) {
	l := newRDMALab(t)
	from, to := l.side(t)
	s := l.newStation(t)
	text := fmt.Sprintf(`
region: {size: 64MiB, extent: 256KiB, extents: 16}
flows:
  - name: wal
    from: {rdma: "roce:%s", listen: "%s", window: 16, clients: 4}
    to: {file: %s/wal, layout: slot, segment: {size: 4MiB}, prepare: allocate}
  - name: cap
    from: {interface: %s, ring: 1024, filter: udp}
    to: {file: %[3]s/cap, layout: slot, segment: {size: 4MiB}, flush: 20ms, durable: 50ms, prepare: allocate}
`, l.B.Ifname, l.address(), l.dir, to.Ifname)
	d := l.start(t, text, Options{})
	c := s.newClient(t, 1, l.address(), "wal", 1000)
	wal, captured := d.Flows()[0], d.Flows()[1]
	for n := range 5 {
		c.send(300)
		l.sides(t, fmt.Sprint("more", n))
		testenv.SendRaw(t, &from, testenv.Stream(&from, &to, 9, uint64(n*300), 300, 300), testenv.SendOptions{})
		text += fmt.Sprintf("  - {name: more%d, from: {interface: more%[1]dx, ring: 256}, to: {file: %s/more%[1]d, layout: slot, segment: {size: 1MiB}, prepare: allocate}}\n", n, l.dir)
		l.reloaded(t, text)
	}
	c.settle(t)
	await(t, captured, "the capture to have everything", func(s status.Flow) bool { return s.Durable.Packets == 1500 })
	if st := wal.Status(); st.Log.Last != 1500 || st.Receives.Connected != 1 {
		t.Errorf("the log: %+v, %+v", st.Log, st.Receives)
	}
	c.stop()
}
