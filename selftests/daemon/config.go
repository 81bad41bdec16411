package daemon

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// Configure replaces the configuration that the daemon was launched with. The daemon does not
// notice it yet.
func (d *Daemon) Configure(t *testing.T, text string) {
	t.Helper()
	file := filepath.Join(filepath.Dir(d.Socket), "unifiedd.yaml")
	testenv.Must(t, os.WriteFile(file+".new", []byte("control: {socket: "+d.Socket+"}\n"+text), 0o600))
	testenv.Must(t, os.Rename(file+".new", file))
}

// Hangup sends SIGHUP, so that the process reads its configuration again.
func (d *Daemon) Hangup(t *testing.T) {
	t.Helper()
	testenv.Must(t, d.cmd.Process.Signal(syscall.SIGHUP))
}
