package daemon

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Configure writes another configuration in place of the one the daemon was launched with.
// The daemon does not know of it yet.
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

// Hangup asks the process to read its configuration again.
func (d *Daemon) Hangup(t *testing.T) {
	t.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}
