package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestRevoke: after a host's key is removed from the keys file, the plan and the reload report it.
// A keys file that the daemon's user cannot read is refused by name.
func TestRevoke(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{MTU: 4200})
	dir := testenv.DiskDir(t)
	for d := dir; strings.HasPrefix(d, os.TempDir()+"/"); d = filepath.Dir(d) {
		testenv.Must(t, os.Chmod(d, 0o755))
	}
	const key = " DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:\n"
	keys, disk, file, socket := filepath.Join(dir, "keys"), filepath.Join(dir, "disk"), filepath.Join(dir, "test.yaml"), filepath.Join(dir, "run", "control.sock")
	set := func(text string, mode os.FileMode) {
		t.Helper()
		testenv.Must(t, os.WriteFile(keys, []byte(text), mode))
		testenv.Must(t, os.Chmod(keys, mode))
	}
	set("nqn.2026-01.com.example:good"+key+"nqn.2026-01.com.example:stolen"+key, 0o600)
	write(t, disk, make([]byte, 1<<20))
	for _, name := range []string{keys, disk} {
		testenv.Must(t, os.Chown(name, 65534, 65534))
	}
	write(t, file, fmt.Appendf(nil, `
region: {size: 64MiB, extents: 16, pages: ordinary}
user: nobody
control: {socket: %s}
flows:
  - name: v
    from: {file: %s}
    to: {rdma: "roce:%s", listen: "%s:4420", subsystem: nqn.2026-01.com.example:v, keys: %s, clients: 4, window: 32}
`, socket, disk, p.B.Ifname, p.B.IP, keys))
	testenv.Must(t, os.Chmod(file, 0o644))
	daemon := commandAsIs(t, &p.B, nil, "run", "-c", file)
	var errs bytes.Buffer
	daemon.Stderr = &errs
	defer func() {
		if t.Failed() {
			t.Logf("the daemon said: %s", &errs)
		}
	}()
	testenv.Must(t, daemon.Start())
	_, pid := own(t, daemon)
	says := func(status int, want string, args ...string) {
		t.Helper()
		got, stdout, stderr := finish(t, commandAsIs(t, &p.B, nil, append(args, "--socket", socket)...))
		if got != status || !strings.Contains(stdout+stderr, want) {
			t.Errorf("%v: status %d, %s%s", args, got, stdout, stderr)
		}
	}
	testenv.Wait(t, 20*time.Second, "the daemon", func() bool {
		status, _, _ := finish(t, commandAsIs(t, &p.B, nil, "reload", "--socket", socket))
		return status == 0
	})
	says(0, "unchanged, generation 1", "reload")
	set("nqn.2026-01.com.example:good"+key, 0o600)
	says(0, "flow v: keys of hosts are read again, nothing restarts\n", "check", "--plan")
	says(0, "v: 0 sessions ended", "reload")
	says(0, "unchanged, generation 2", "reload")
	set("nqn.2026-01.com.example:good"+key, 0o644)
	says(exitFailed, "chmod 0600 "+keys, "reload")
	set("nqn.2026-01.com.example:good DHHC-1:00:x:\n", 0o600)
	says(exitFailed, keys+":1: host nqn.2026-01.com.example:good: no key", "reload")
	testenv.Check(t, unix.Kill(pid, unix.SIGTERM))
	if err := daemon.Wait(); err != nil {
		t.Errorf("%v: %s", err, &errs)
	}
}
