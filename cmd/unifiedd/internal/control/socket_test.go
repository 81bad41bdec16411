package control

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

func TestSocketReplacesADeadOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	testenv.Must(t, err)
	dead.SetUnlinkOnClose(false)
	testenv.Must(t, dead.Close())
	l, err := listenUnix(path)
	testenv.Must(t, err)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v: %v", info.Mode(), err)
	}
	if _, err := listenUnix(path); err == nil || !strings.Contains(err.Error(), "another unifiedd answers") {
		t.Errorf("a second one: %v", err)
	}
	testenv.Check(t, l.Close())
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("after closing it is still there: %v", err)
	}
}

// TestSocketSparesFiles: listenUnix refuses a path that is not a socket, and leaves the file
// unchanged.
func TestSocketSparesFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "capture.pcapng")
	testenv.Must(t, os.WriteFile(path, []byte("packets"), 0o600))
	if l, err := listenUnix(path); err == nil {
		l.Close()
		t.Error("it listens in place of a file")
	} else if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "choose another control.socket") {
		t.Errorf("it says %v", err)
	}
	if got, err := os.ReadFile(path); string(got) != "packets" {
		t.Errorf("the file has %q: %v", got, err)
	}
}
