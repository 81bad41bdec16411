package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// comeback is a daemon in end B of a pair that is taken away and comes back.
type comeback struct {
	*testenv.Pair
	dir string
	log *safeBuffer
}

// runComeback runs a daemon with flows. DIR in them is a directory.
func runComeback(t *testing.T, flows string) *comeback {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	r := &comeback{testenv.NewPair(t, testenv.PairOptions{}), testenv.DiskDir(t), newSafeBuffer(t)}
	reach(t, r.dir)
	file := filepath.Join(r.dir, "test.yaml")
	text := "region: {size: 64MiB, pages: ordinary}\ncontrol: {socket: DIR/own/control.sock}\nattach: {socket: DIR/own/attach.sock}\ntrace: {events: 0}\nflows:\n" + flows
	testenv.Must(t, os.WriteFile(file, []byte(strings.NewReplacer("DIR", r.dir, "IFACE", r.B.Ifname).Replace(text)), 0o644))
	cmd := commandAsIs(t, &r.B, nil, "run", "-c", file)
	cmd.Stderr = r.log.file
	r.watch(t, cmd)
	return r
}

// watch starts a daemon. The end of the test ends it.
func (r *comeback) watch(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	testenv.Must(t, cmd.Start())
	t.Cleanup(func() {
		testenv.Check(t, cmd.Process.Signal(unix.SIGTERM))
		testenv.Check(t, cmd.Wait())
		if t.Failed() {
			t.Log(r.log)
		}
	})
}

func (r *comeback) socket() string { return filepath.Join(r.dir, "own/control.sock") }

// flow waits until a flow's status is as wanted.
func (r *comeback) flow(t *testing.T, name, what string, is func(f *status.Flow) bool) (found status.Flow) {
	t.Helper()
	testenv.Wait(t, testenv.Within(30*time.Second), name+": "+what, func() bool {
		var s status.Daemon
		raw, err := control.Status(t.Context(), r.socket())
		if err != nil {
			return false // it has just begun
		}
		testenv.Must(t, json.Unmarshal(raw, &s))
		for i := range s.Flows {
			if found = s.Flows[i]; found.Name == name {
				return is(&found)
			}
		}
		return false
	})
	return found
}

func up(f *status.Flow) bool      { return f.State.Up() }
func retried(f *status.Flow) bool { return f.State == status.Failed && !f.NextStart.IsZero() }

// comeBack makes the pair again.
func (r *comeback) comeBack(t *testing.T) {
	t.Helper()
	r.A.Run(t, "ip", "link", "add", r.A.Ifname, "type", "veth", "peer", "name", r.B.Ifname, "netns", r.B.Name)
	for _, e := range []*testenv.End{&r.A, &r.B} {
		e.Run(t, "ip", "addr", "add", e.IP.String()+"/24", "dev", e.Ifname)
		e.Run(t, "ip", "link", "set", e.Ifname, "up")
		e.Do(t, func() {
			i, err := net.InterfaceByName(e.Ifname)
			testenv.Must(t, err)
			e.Index, e.MAC = i.Index, i.HardwareAddr
		})
	}
}

// TestInterfaceComesBack: flows whose interface was removed start again when there is one of that name, and are counted
// and logged. One that is stopped meanwhile, and one that is never to start again, do not.
func TestInterfaceComesBack(t *testing.T) {
	r := runComeback(t, `
  - {name: cap, from: {interface: IFACE, ring: 512, filter: udp dst port 5000}, to: {file: DIR/own/cap, segment: {size: 1MiB}, flush: 20ms, durable: 50ms}}
  - {name: other, from: {interface: IFACE, ring: 512, filter: udp dst port 5001}, to: {discard: true}}
  - {name: once, restart: never, from: {interface: IFACE, ring: 512, filter: udp dst port 5002}, to: {discard: true}}
`)
	all := []string{"cap", "other", "once"}
	for _, name := range all {
		r.flow(t, name, "to run", up)
	}
	r.A.Delete(t)
	first := r.flow(t, "other", "to be tried again", retried).NextStart
	r.flow(t, "other", "to be tried twice more", func(f *status.Flow) bool { return retried(f) && f.NextStart.Sub(first) > 250*time.Millisecond })
	for _, name := range all[:2] {
		s := r.flow(t, name, "to say why", func(f *status.Flow) bool { return retried(f) && strings.Contains(f.Error, "again yet") })
		testenv.MessageNames(t, s.Error, []string{"gone", "does not start again yet", r.B.Ifname, "ip link"})
	}
	if s := r.flow(t, "once", "to fail", func(f *status.Flow) bool { return f.State == status.Failed }); !s.NextStart.IsZero() {
		t.Errorf("%+v", s)
	}
	for _, name := range all[:2] {
		if n := strings.Count(r.log.String(), `msg="the flow does not start again yet: it is tried again" flow=`+name); n != 1 {
			t.Errorf("%d lines say that %s does not start", n, name)
		}
	}
	r.comeBack(t)
	for _, name := range all[:2] {
		if s := r.flow(t, name, "to run again", up); s.Restarts != 1 || s.Error != "" || !s.NextStart.IsZero() {
			t.Errorf("%+v", s)
		}
	}
	testenv.SendRaw(t, &r.A, testenv.Stream(&r.A, &r.B, 5000, 0, 10, 100), testenv.SendOptions{})
	r.flow(t, "cap", "10 packets", func(f *status.Flow) bool { return f.Durable.Packets == 10 })

	r.A.Delete(t)
	for _, name := range all[:2] {
		r.flow(t, name, "to be tried again", retried)
	}
	_, err := control.StopFlow(t.Context(), r.socket(), "cap")
	testenv.Must(t, err)
	if s := r.flow(t, "cap", "to be stopped", func(f *status.Flow) bool { return f.State == status.Stopped }); !s.NextStart.IsZero() {
		t.Errorf("%+v", s)
	}
	r.comeBack(t)
	r.flow(t, "other", "to run again", func(f *status.Flow) bool { return up(f) && f.Restarts == 2 })
	for name, state := range map[string]status.State{"cap": status.Stopped, "once": status.Failed} {
		if s := r.flow(t, name, "to be listed", func(*status.Flow) bool { return true }); s.State != state {
			t.Errorf("%s is %s", name, s.State)
		}
		_, err := control.StartFlow(t.Context(), r.socket(), name)
		testenv.Must(t, err)
		r.flow(t, name, "to run when it is started", up)
	}
}

// TestRDMAInterfaceComesBack: a flow whose RDMA device was taken away starts again when the device is back.
func TestRDMAInterfaceComesBack(t *testing.T) {
	r := runComeback(t, fmt.Sprintf(`
  - {name: wal, from: {rdma: "roce:IFACE", listen: ":%d", message: 1KiB, clients: 2, window: 16}, to: {file: DIR/own/wal, segment: {size: 8MiB}}}
`, 7471))
	r.flow(t, "wal", "to run", up)
	r.A.Delete(t)
	r.flow(t, "wal", "to be tried again", retried)
	r.comeBack(t)
	if s := r.flow(t, "wal", "to run again", up); s.Restarts != 1 {
		t.Errorf("%+v", s)
	}
}
