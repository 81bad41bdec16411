package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/privsep"
	"github.com/unifiedd/unifiedd/internal/caps"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestRunRights: root starts the daemon with each setting that depends on rights. The test kills it
// and starts it again, and the daemon recovers its files.
func TestRunRights(t *testing.T) {
	testenv.Root(t)
	for name, c := range map[string]struct {
		global, to string
		user       int // of the daemon
		owner      int // of the files
		group      int
		mode       fs.FileMode
		keep       caps.Set
	}{
		"as root":           {"", "", 0, 0, 0, 0o640, privsep.Needed},
		"user":              {"user: nobody", "", 65534, 65534, 65534, 0o640, privsep.Needed},
		"user and mode":     {"user: nobody", ", mode: 0604", 65534, 65534, 65534, 0o604, privsep.Needed},
		"owner":             {"", ", owner: nobody, index: true", 0, 65534, 0, 0o640, privsep.Needed | privsep.Giving},
		"owner and mode":    {"", ", owner: \"nobody:daemon\", mode: 0600", 0, 65534, 1, 0o600, privsep.Needed | privsep.Giving},
		"group":             {"", ", owner: \":daemon\"", 0, 0, 1, 0o640, privsep.Needed | caps.Chown},
		"user and owner":    {"user: daemon", ", owner: nobody", 1, 65534, 1, 0o640, privsep.Needed | privsep.Giving},
		"user is the owner": {"user: nobody", ", owner: nobody", 65534, 65534, 65534, 0o640, privsep.Needed},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "user and mode" && name != "owner and mode" {
				testenv.Long(t, "two cases have all settings")
			}
			p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
			background(t, p)
			dir := testenv.DiskDir(t)
			for d := dir; strings.HasPrefix(d, os.TempDir()+"/"); d = filepath.Dir(d) {
				testenv.Must(t, os.Chmod(d, 0o755))
			}
			own := filepath.Join(dir, "own")
			file := filepath.Join(dir, "test.yaml")
			text := fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary, extents: 8}
control: {socket: %s/control.sock}
%s
flows:
  - name: cap
    from: {interface: %s, ring: 512}
    to: {file: %s/cap, segment: {size: 1MiB}, flush: 20ms, durable: 50ms%s}
`, own, c.global, p.B.Ifname, own, c.to)
			testenv.Must(t, os.WriteFile(file, []byte(text), 0o644))
			for _, end := range []unix.Signal{unix.SIGKILL, unix.SIGTERM} {
				s := runOnce(t, p, file, end)
				if int(s.UID.Effective) != c.user || s.Effective != c.keep || s.Bounding != c.keep || !s.NoNewPrivs || s.Seccomp != 2 {
					t.Errorf("the daemon is %+v", s)
				}
			}
			found, err := filepath.Glob(filepath.Join(own, "cap-*.pcapng"))
			if err != nil || len(found) < 2 {
				t.Fatalf("segments: %v, %v", found, err)
			}
			for _, name := range found {
				info, err := os.Stat(name)
				testenv.Must(t, err)
				if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != c.owner || int(st.Gid) != c.group || info.Mode() != c.mode {
					t.Errorf("%s is of %d:%d, with mode %v", name, st.Uid, st.Gid, info.Mode())
				}
			}
		})
	}
}

// runOnce runs the daemon until it has written something, reads its rights, and ends it.
func runOnce(t *testing.T, p *testenv.Pair, file string, end unix.Signal) caps.Status {
	t.Helper()
	segments := func() int {
		found, err := filepath.Glob(filepath.Join(filepath.Dir(file), "own", "cap-*.pcapng"))
		testenv.Must(t, err)
		return len(found)
	}
	before := segments()
	cmd := commandAsIs(t, &p.B, nil, "run", "-c", file)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	testenv.Must(t, cmd.Start())
	s, pid := own(t, cmd)
	t.Logf("run: Uid %d, CapEff %016x, CapBnd %016x, NoNewPrivs %v, Seccomp %d", s.UID.Effective, uint64(s.Effective), uint64(s.Bounding), s.NoNewPrivs, s.Seccomp)
	testenv.Wait(t, testenv.Within(20*time.Second), "a segment", func() bool { return segments() > before })
	time.Sleep(300 * time.Millisecond) // a few batches
	testenv.Check(t, unix.Kill(pid, end))
	err := cmd.Wait()
	if end == unix.SIGTERM && err != nil || strings.Contains(errs.String(), "denied") || strings.Contains(errs.String(), "not permitted") {
		t.Errorf("%v: %s", err, &errs)
	}
	return s
}
