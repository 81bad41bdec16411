package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/authority"
)

// hostKey is a line of a keys file for NVMe hosts.
const hostKey = "nqn.2026-01.com.example:host DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:\n"

// fileCase is a setting that names a file, directory or device.
type fileCase struct {
	name, setting string // the setting's name in the error
	global, flow  string // text with PATH in place of the file
	content       []byte // of the file; nil: PATH is a directory
	mode          fs.FileMode
}

// fileCases returns all such settings.
func fileCases(t *testing.T, p *testenv.Pair, dir string) []fileCase {
	t.Helper()
	in := filepath.Join(dir, "in.pcap")
	record(t, p, in, testenv.Stream(&p.A, &p.B, 5000, 0, 300, 10))
	a := authority.New(t)
	cert, key := a.Issue(t, "server.example")
	read := func(path string) []byte {
		b, err := os.ReadFile(path)
		testenv.Must(t, err)
		return b
	}
	for name, from := range map[string]string{"cert": cert, "key": key, "ca": a.File()} {
		writeOpen(t, filepath.Join(dir, name), read(from))
	}
	image := make([]byte, 1<<20)
	writeOpen(t, filepath.Join(dir, "image"), image)
	rdma := fmt.Sprintf(`rdma: "roce:%s", listen: "%v:7471"`, p.B.Ifname, p.B.IP)
	const capture = "from: {interface: IFACE, ring: 512}, "
	const volume = "subsystem: nqn.a, clients: 4, window: 32, "
	const discard = capture + "to: {discard: true}"
	const replay = ", loop: endless}, to: {interface: IFACE, pace: 100pps}"
	image2 := "from: {file: DIR/image}, to: {" + rdma + ", " + volume + "read_only: true, "
	return []fileCase{
		{"replay", "flow f: from.file", "", "from: {file: PATH" + replay, read(in), 0o600},
		{"segments", "flow f: from.file", "", "from: {file: PREFIX" + replay, read(in), 0o600},
		{"captures", "use directory", "", capture + "to: {file: PATH/cap, segment: {size: 1MiB}}", nil, 0o755},
		{"log", "use directory", "", "from: {" + rdma + ", clients: 2, window: 16}, to: {file: PATH/log, segment: {size: 1MiB}}", nil, 0o755},
		{"control", "use directory", "control: {socket: PATH/control.sock}", discard, nil, 0o755},
		{"blocks", "flow f: from.file", "", "from: {file: PATH}, to: {" + rdma + ", clients: 2, transfer: 64KiB}", image, 0o600},
		{"volume", "flow f: from.file", "", "from: {file: PATH}, to: {" + rdma + ", " + volume + "allow_any_host: true}", image, 0o644},
		{"namespace", "flow f: namespace 2 of nqn.a", "", image2 + "allow_any_host: true, namespaces: [{id: 2, file: PATH}]}", image, 0o644},
		{"keys", "flow f: to.keys", "", image2 + "keys: PATH}", []byte(hostKey), 0o600},
		{"certificate", "tls.certificate", "tls: {certificate: PATH, key: DIR/key, authority: DIR/ca}", discard, read(cert), 0o600},
		{"key", "tls.key", "tls: {certificate: DIR/cert, key: PATH, authority: DIR/ca}", discard, read(key), 0o600},
		{"authority", "tls.authority", "tls: {certificate: DIR/cert, key: DIR/key, authority: PATH}", discard, read(a.File()), 0o600},
		{"object", "flows[0].from.filter.object", "", "from: {interface: IFACE, ring: 512, filter: {object: PATH, program: other_pass}}, to: {discard: true}",
			read("../../internal/testenv/testdata/pass.o"), 0o600},
		{"ring", "flow f: to.device", "", capture + "to: {device: DEVICE, segment: {size: 4MiB}}", nil, 0},
		{"disk", "flow f: from.device", "", "from: {device: DEVICE}, to: {" + rdma + ", clients: 2, transfer: 64KiB}", nil, 0},
	}
}

// TestRunFiles: root starts the daemon with a user, and with each setting that names a file,
// directory or device. If the user may not use it, the daemon fails with the setting, the path, the
// user and the remedy. If the user may, the flow runs.
func TestRunFiles(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{})
	dir := testenv.DiskDir(t)
	reach(t, dir)
	for _, c := range fileCases(t, p, dir) {
		t.Run(c.name, func(t *testing.T) {
			path, file := c.arrange(t, p, dir)
			status, _, stderr := finish(t, commandAsIs(t, &p.B, nil, "run", "-c", file))
			user := "user 65534"
			if strings.HasPrefix(c.setting, "flows[") { // the configuration check refuses it
				user = "user nobody"
			}
			for _, want := range []string{c.setting, path, user, "permission denied", "("} {
				if status != 1 || !strings.Contains(stderr, want) {
					t.Errorf("refused: status %d, want %q in: %s", status, want, stderr)
				}
			}
			if err := os.Chown(path, 65534, 65534); err != nil { // apply the remedy
				t.Fatal(err)
			}
			runs(t, p, file)
		})
	}
}

// arrange makes the file of a case, owned by root, and a configuration that names it.
func (c fileCase) arrange(t *testing.T, p *testenv.Pair, dir string) (path, configuration string) {
	t.Helper()
	path = filepath.Join(dir, "the-"+c.name)
	prefix := path
	text := fmt.Sprintf("region: {size: 64MiB, pages: ordinary, extent: 256KiB, extents: 64}\nuser: nobody\n%s\nflows:\n  - {name: f, %s}\n", c.global, c.flow)
	if !strings.Contains(text, "control:") {
		text += "control: {socket: DIR/own-" + c.name + "/control.sock}\n"
	}
	switch {
	case strings.Contains(text, "DEVICE"):
		path = testenv.Zram(t, 64<<20)
	case strings.Contains(text, "PREFIX"):
		path += "-20260101T000000Z-000001.pcapng"
		fallthrough
	case c.content != nil:
		write(t, path, c.content)
		testenv.Must(t, os.Chmod(path, c.mode))
	default:
		testenv.Must(t, os.Mkdir(path, c.mode))
	}
	configuration = filepath.Join(dir, c.name+".yaml")
	text = strings.NewReplacer("PATH", path, "DEVICE", path, "PREFIX", prefix, "DIR", dir, "IFACE", p.B.Ifname).Replace(text)
	writeOpen(t, configuration, []byte(text))
	return path, configuration
}

// runs starts the daemon, waits until its flow runs, and ends it.
func runs(t *testing.T, p *testenv.Pair, file string) {
	t.Helper()
	cmd := commandAsIs(t, &p.B, nil, "run", "-c", file)
	log := filepath.Join(t.TempDir(), "log")
	errs, err := os.Create(log)
	testenv.Must(t, err)
	defer errs.Close()
	cmd.Stderr = errs
	testenv.Must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	said := func() string {
		all, _ := os.ReadFile(log)
		return string(all)
	}
	testenv.Wait(t, 20*time.Second, "the flow", func() bool { return strings.Contains(said(), "flow runs") || len(ended) > 0 })
	_ = cmd.Process.Signal(unix.SIGTERM) // the process may have ended
	if err := <-ended; err != nil || !strings.Contains(said(), "flow runs") {
		t.Errorf("%v: %s", err, said())
	}
}

// reach lets all users traverse the path to a test's directory.
func reach(t *testing.T, dir string) {
	t.Helper()
	for ; strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		testenv.Must(t, os.Chmod(dir, 0o755))
	}
}

// writeOpen writes a file that all users may read.
func writeOpen(t *testing.T, path string, content []byte) {
	t.Helper()
	write(t, path, content)
	testenv.Must(t, os.Chmod(path, 0o644))
}

// TestRunUnreadable: the daemon refuses a configuration that its user may not read, and names the user.
func TestRunUnreadable(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	dir := testenv.DiskDir(t)
	reach(t, dir)
	file := filepath.Join(dir, "test.yaml")
	write(t, file, fmt.Appendf(nil, "region: {size: 64MiB, pages: ordinary, extents: 8}\nuser: nobody\ncontrol: {socket: %s/own/control.sock}\nflows:\n  - {name: f, from: {generate: 64}, to: {discard: true}}\n", dir))
	status, _, stderr := finish(t, commandAsIs(t, &p.B, nil, "run", "-c", file))
	missing := func(word string) bool { return !strings.Contains(stderr, word) }
	if status != 1 || slices.ContainsFunc([]string{file, "as user nobody", "permission denied", "chgrp"}, missing) {
		t.Errorf("status %d: %s", status, stderr)
	}
	testenv.Must(t, os.Chown(file, 65534, 65534))
	runs(t, p, file)
}
