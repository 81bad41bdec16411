package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// ordinaryLine is the line that says what a region without huge pages costs.
const ordinaryLine = "there are no huge pages for the region"

// withoutPages returns a command in an end's namespace on a machine that seems to have no huge pages.
func withoutPages(t *testing.T, e *testenv.End, args ...string) *exec.Cmd {
	t.Helper()
	script := `mount -t tmpfs none /sys/kernel/mm/hugepages && exec timeout 60 "$@"`
	return e.Command("unshare", append([]string{"--mount", "--propagation", "private", "sh", "-ec", script, "sh"}, args...)...)
}

// openTo lets every user pass to a directory.
func openTo(t *testing.T, dir string) {
	t.Helper()
	for d := dir; strings.HasPrefix(d, os.TempDir()+"/"); d = filepath.Dir(d) {
		testenv.Must(t, os.Chmod(d, 0o755))
	}
}

// untilRecorded runs a daemon until a file with that prefix has a packet, and returns what it has logged.
func untilRecorded(t *testing.T, cmd *exec.Cmd, socket, prefix string) (said string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	to, err := os.Create(log)
	testenv.Must(t, err)
	defer to.Close()
	cmd.Stdout, cmd.Stderr = to, to
	testenv.Must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		if err := <-ended; err != nil {
			t.Errorf("the daemon ends with %v: %s", err, read(t, log))
		}
		said = string(read(t, log))
	}()
	testenv.Wait(t, testenv.Within(20*time.Second), "packets in a file", func() bool {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the daemon ended: %v: %s", err, read(t, log))
		default:
		}
		found, _ := filepath.Glob(prefix + "-*.pcapng")
		for _, name := range found {
			if out, _ := exec.Command("tcpdump", "-nr", name).Output(); bytes.Contains(out, []byte("UDP")) {
				return true
			}
		}
		return false
	})
	checkSockets(t, socket)
	return ""
}

// checkSockets checks that other users can pass to the sockets, and that the control socket is not for them.
func checkSockets(t *testing.T, socket string) {
	t.Helper()
	dir, err := os.Stat(filepath.Dir(socket))
	testenv.Must(t, err)
	info, err := os.Stat(socket)
	testenv.Must(t, err)
	if dir.Mode().Perm() != 0o755 || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("the directory of the sockets has mode %v, and the control socket %v", dir.Mode(), info.Mode())
	}
}

// TestRunWithoutHugePages: the shortest configuration of README runs on a machine without huge pages, and the log says once
// what that costs. A program of another user can connect to attach.
func TestRunWithoutHugePages(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	background(t, p)
	dir := testenv.DiskDir(t)
	openTo(t, dir)
	sockets := filepath.Join(dir, "sockets") // the daemon makes it
	file := filepath.Join(dir, "unifiedd.yaml")
	text := fmt.Sprintf(`
control: {socket: %[1]s/control.sock}
flows:
  - name: feed
    from: {interface: %[2]s, filter: "udp and dst port 5000"}
    to: {file: %[3]s/feed, segment: {size: 1GiB, keep: 24}, keep_free: 0}
`, sockets, p.B.Ifname, dir)
	testenv.Must(t, os.WriteFile(file, []byte(text), 0o600))
	said := untilRecorded(t, withoutPages(t, &p.B, program(t), "run", "-c", file), filepath.Join(sockets, "control.sock"), filepath.Join(dir, "feed"))
	if strings.Count(said, ordinaryLine) != 1 {
		t.Errorf("the log does not say once that there are no huge pages: %s", said)
	}
}

// TestPackagedConfiguration: what the packages install starts with the rights of their unit, on a machine without free huge
// pages.
func TestPackagedConfiguration(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	feed := *p
	feed.B.IP = netip.MustParseAddr("239.1.2.3")
	background(t, &feed)
	dir := testenv.DiskDir(t)
	openTo(t, dir)
	text, err := os.ReadFile("../../packaging/unifiedd.yaml")
	testenv.Must(t, err)
	own, sockets := filepath.Join(dir, "state"), filepath.Join(dir, "sockets")
	for _, made := range []string{own, sockets} { // systemd makes them
		testenv.Must(t, os.Mkdir(made, 0o755))
	}
	for old, with := range map[string]string{"/var/lib/unifiedd": own, "interface: eth1": "interface: " + p.B.Ifname, "user: unifiedd ": "user: " + other + " "} {
		if !strings.Contains(string(text), old) {
			t.Fatalf("the packaged configuration has no %q", old)
		}
		text = []byte(strings.ReplaceAll(string(text), old, with))
	}
	text = append(text, fmt.Sprintf("control: {socket: %s/control.sock, state: %s/commands}\n", sockets, own)...)
	file, binary := filepath.Join(dir, "unifiedd.yaml"), filepath.Join(dir, "unifiedd")
	self, err := os.ReadFile(program(t))
	testenv.Must(t, err, os.WriteFile(file, text, 0o644), os.WriteFile(binary, self, 0o755))
	permit(t, filepath.Join(own, "x"))
	testenv.Must(t, exec.Command("chown", other+":"+other, own, sockets).Run())
	unit, err := os.ReadFile("../../packaging/unifiedd.service")
	testenv.Must(t, err)
	_, rights, _ := strings.Cut(string(unit), "\nAmbientCapabilities=")
	rights, _, _ = strings.Cut(rights, "\n")
	var set []string
	for name := range strings.FieldsSeq(rights) {
		set = append(set, "+"+strings.ToLower(strings.TrimPrefix(name, "CAP_")))
	}
	all := "-all," + strings.Join(set, ",")
	args := []string{testenv.Tool(t, "setpriv"), "--reuid=" + other, "--regid=" + other, "--clear-groups", "--inh-caps=" + all, "--ambient-caps=" + all, "--bounding-set=" + all, "--no-new-privs", binary}
	said := untilRecorded(t, withoutPages(t, &p.B, append(args, "run", "-c", file)...), filepath.Join(sockets, "control.sock"), filepath.Join(own, "feed"))
	if strings.Count(said, ordinaryLine) != 1 || strings.Contains(said, "level=ERROR") {
		t.Errorf("the log: %s", said)
	}
}
