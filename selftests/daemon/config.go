package daemon

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Configure replaces the configuration that the daemon was launched with. The daemon does not
// notice it yet.
func (d *Daemon) Configure(t *testing.T, text string) {
	t.Helper()
	file := filepath.Join(filepath.Dir(d.Socket), "unifiedd.yaml")
	if err := os.WriteFile(file+".new", []byte("control: {socket: "+d.Socket+"}\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// Hangup sends SIGHUP, so that the process reads its configuration again.
func (d *Daemon) Hangup(t *testing.T) {
	t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}
