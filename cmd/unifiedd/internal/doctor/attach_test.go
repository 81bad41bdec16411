package doctor

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/caps"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// attaching returns a configuration with programs of users, and the socket in dir.
func attaching(dir string, users ...string) *config.Config {
	c := config.Default()
	c.Attach.Socket = filepath.Join(dir, "attach.sock")
	c.Control.Socket = filepath.Join(dir, "control.sock")
	for _, u := range users {
		c.Attach.Programs = append(c.Attach.Programs, config.Program{Name: "of-" + u, User: u, In: 4 * config.MiB, Out: 2 * config.MiB})
	}
	return c
}

// openDir makes a directory that every user can reach.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for path := dir; strings.HasPrefix(path, os.TempDir()+"/"); path = filepath.Dir(path) {
		testenv.Must(t, os.Chmod(path, 0o755))
	}
	return dir
}

// TestAttachUsers: a program's user must exist, should be another one than the daemon's and than root, and must reach
// the socket.
func TestAttachUsers(t *testing.T) {
	testenv.Root(t)
	dir := openDir(t)
	c := attaching(dir, "nobody", "root", "nobody-at-all", "daemon")
	c.User = "daemon"
	if err := os.Chown(dir, 1, 1); err != nil { // daemon, on every Debian
		t.Fatal(err)
	}
	var r Report
	r.addAttach(newNeeds(Options{Config: c}))
	const subject = "attached programs"
	expect(t, "directory", of(t, &r, subject, "attach.socket"), OK, "may make the socket")
	expect(t, "nobody", of(t, &r, subject, "program of-nobody"), OK, "another than the daemon's")
	expect(t, "root", of(t, &r, subject, "program of-root"), Warn, "a user of its own")
	expect(t, "the daemon's", of(t, &r, subject, "program of-daemon"), Warn, "could open its memory anew")
	expect(t, "unknown", of(t, &r, subject, "program of-nobody-at-all"), Fail, "useradd --system nobody-at-all")
	expect(t, "memory", of(t, &r, subject, "memory of programs"), OK, "16 MiB that they read, among the huge pages above; 8 MiB that they write")

	testenv.Must(t, os.Chmod(dir, 0o700))
	blocked := reaches(c.Attach.Socket, "p", "nobody")
	if len(blocked) != 1 {
		t.Fatalf("%+v", blocked)
	}
	expect(t, "closed", blocked[0], Fail, "chmod o+x "+dir)
	if mine := reaches(c.Attach.Socket, "p", "daemon"); len(mine) != 0 {
		t.Errorf("the directory's owner: %+v", mine)
	}
	testenv.Must(t, os.Chown(dir, 0, 0))
	expect(t, "not writable", attachDirectory(c), Fail, "install -d -o 1 -m 755 "+dir)
	c.Attach.Socket = filepath.Join(dir, "none", "attach.sock")
	c.User = ""
	expect(t, "made at the start", attachDirectory(c), OK, "at its start")
}

// TestAttachSocket: a socket that its user may not connect to is found.
func TestAttachSocket(t *testing.T) {
	testenv.Root(t)
	dir := openDir(t)
	c := attaching(dir, "nobody")
	l, err := net.Listen("unixpacket", c.Attach.Socket)
	testenv.Must(t, err)
	defer l.Close()
	testenv.Must(t, os.Chmod(c.Attach.Socket, 0o600))
	found := reaches(c.Attach.Socket, "p", "nobody")
	if len(found) != 1 {
		t.Fatalf("%+v", found)
	}
	expect(t, "socket", found[0], Fail, "may not connect")
}

// TestAttachMemory: the memory of programs counts for huge pages and for locked memory.
func TestAttachMemory(t *testing.T) {
	plain, with := config.Default(), attaching(t.TempDir(), "root")
	if a, b := (needs{Config: plain}).pagesFrom(umem.Huge2M, -1), (needs{Config: with}).pagesFrom(umem.Huge2M, -1); b != a+2 {
		t.Errorf("huge pages: %d, with 4 MiB that a program reads %d", a, b)
	}
	limit := uint64(plain.Region.Size) * 2
	expect(t, "without", judgeLocked(needs{Config: plain}, limit, 0), OK, "needed")
	expect(t, "with", judgeLocked(needs{Config: with}, limit, 0), Warn, "526 MiB needed")
	expect(t, "lifted", judgeLocked(needs{Config: with}, limit, caps.IPCLock), OK, "CAP_IPC_LOCK lifts")
	expect(t, "too much", writtenMemory(&with.Attach, 1<<20), Fail, "1 MiB of memory are available")
	expect(t, "not known", writtenMemory(&with.Attach, 0), OK, "on ordinary pages")
}

// TestExposed: what a program can read depends on the driver and the policy.
func TestExposed(t *testing.T) {
	f := config.NewFlowOf(config.KindNetworkAttach, "md")
	f.From.Interface, f.To.Attach, f.To.Place, f.To.Expose = "eth1", "strategy", config.PlaceHere, true
	expect(t, "offered", exposed(&f, true, nil), Warn, "program strategy can then read every packet of all queues")
	expect(t, "not offered", exposed(&f, false, nil), OK, "no zero copy")
	expect(t, "not known", exposed(&f, false, errors.New("Linux 6.1")), Warn, "is not known (Linux 6.1)")
	f.From.Queues = []int{2}
	expect(t, "queues", exposed(&f, true, nil), Warn, "queues [2]")
	f.From.ZeroCopy = config.ZeroCopyCopy
	expect(t, "copy", exposed(&f, true, nil), OK, "only what the filter takes")
	if offered, err := offersZeroCopy("lo"); offered && err == nil {
		t.Error("loopback offers zero copy")
	}
}

// TestWaiting: the programs that flows of a running daemon wait for are named.
func TestWaiting(t *testing.T) {
	s := status.Daemon{Programs: &status.Programs{Programs: []status.Program{
		{Name: "gone"}, {Name: "there", Attached: true, PID: 17}, {Name: "idle", Attached: true, PID: 18}, {Name: "unused"},
	}}, Flows: []status.Flow{
		{Name: "md", State: status.Running, Gives: &status.Gives{Program: "gone"}, Dropped: map[string]uint64{"no_program": 5}},
		{Name: "orders", State: status.Running, Submits: &status.Submits{Program: "gone"}},
		{Name: "feed", State: status.Running, Gives: &status.Gives{Program: "there", Open: true}},
		{Name: "other", State: status.Running, Submits: &status.Submits{Program: "idle"}},
		{Name: "stopped", State: status.Stopped, Submits: &status.Submits{Program: "there"}},
	}}
	raw, err := json.Marshal(s)
	testenv.Must(t, err)
	checks := waiting(raw)
	if len(checks) != 3 {
		t.Fatalf("%+v", checks)
	}
	expect(t, "gone", checks[0], Warn, "md, orders; it is not attached; 5 packets are lost")
	expect(t, "there", checks[1], OK, "process 17 has all its flows open")
	expect(t, "idle", checks[2], Warn, "process 18, and has not opened them")
	if got := waiting([]byte("no status")); len(got) != 1 || got[0].State != Unknown {
		t.Errorf("%+v", got)
	}
}

// TestAttachOfNone: without programs there is nothing to examine.
func TestAttachOfNone(t *testing.T) {
	var r Report
	if r.addAttach(newNeeds(Options{Config: config.Default()})); len(r.Sections) != 0 {
		t.Errorf("%+v", r.Sections)
	}
}
