//go:build lab

package nvme

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

//lab:program cmd/unifiedd

const (
	address    = "10.79.0.1"
	ourPort    = "4420"
	theirPort  = "4421"
	ourNQN     = "nqn.2026-01.com.example:ours"
	theirNQN   = "nqn.2026-01.com.example:theirs"
	regionMiB  = 64
	queueDepth = 128 // as many as the initiator asks for
)

// serveOurs serves the disk with the daemon.
func serveOurs(t *testing.T, device string) {
	t.Helper()
	testenv.HugePages(t, (regionMiB+2)<<20)
	dir := t.TempDir()
	file := filepath.Join(dir, "unifiedd.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, `
control: {socket: %s/control.sock}
region: {size: %dMiB, extent: 512KiB, extents: 24}
workers: [{name: main}]
flows:
  - name: volume
    from: {device: %s}
    to: {rdma: %s, listen: "%s:%s", subsystem: %s, allow_any_host: true, clients: 8, window: %d, force: true}
`, dir, regionMiB, labenv.Disk, device, address, ourPort, ourNQN, queueDepth), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	c := exec.Command(labenv.Program(t, "unifiedd"), "run", "-c", file)
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	said := func() []byte { text, _ := os.ReadFile(log.Name()); return text }
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM) // it may have ended already; Wait returns how
		if err := c.Wait(); err != nil || t.Failed() {
			t.Errorf("the daemon: %v\n%s", err, said())
		}
	})
	testenv.Wait(t, testenv.Within(30*time.Second), "the daemon to serve", func() bool { return bytes.Contains(said(), []byte("flow runs")) })
}
