package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestStartSays: start says that a flow runs, or why it has failed although it opened. Here the limit of file sizes makes the first
// write fail, which must not end the daemon.
func TestStartSays(t *testing.T) {
	testenv.Root(t)
	dir := testenv.DiskDir(t)
	socket, file := filepath.Join(dir, "control.sock"), filepath.Join(dir, "test.yaml")
	write(t, file, []byte(fmt.Sprintf(`user: root
region: {size: 8MiB, extent: 256KiB, pages: ordinary}
control: {socket: %s}
trace: {events: 0}
flows:
  - {name: small, restart: never, from: {generate: 1400}, to: {file: %s/small, segment: {size: 64MiB}, prepare: none, flush: 10ms}}
  - {name: other, from: {generate: 64, rate: 10}, to: {discard: true}}
`, socket, dir)))
	log := newSafeBuffer(t)
	cmd := exec.Command("prlimit", "--fsize=8388608", program(t), "run", "-c", file) // as much as the region's memory
	cmd.Stderr = log.file
	testenv.Must(t, cmd.Start())
	t.Cleanup(func() {
		testenv.Check(t, cmd.Process.Signal(syscall.SIGTERM))
		testenv.Check(t, cmd.Wait())
		if t.Failed() {
			t.Log(log)
		}
	})
	testenv.Wait(t, testenv.Within(time.Minute), "the flow to fail", func() bool {
		raw, err := control.Status(t.Context(), socket)
		var s status.Daemon
		return err == nil && json.Unmarshal(raw, &s) == nil && s.Flows[0].State == status.Failed
	})
	for _, one := range []struct {
		verb, flow string
		status     int
		want       string
	}{
		{"start", "small", exitFailed, "flow small started, and failed: "},
		{"start", "small", exitFailed, "8388608 bytes"},
		{"stop", "other", 0, "flow other is stopped\n"},
		{"start", "other", 0, "flow other is running\n"},
	} {
		code, out, said := finish(t, exec.Command(program(t), one.verb, one.flow, "--socket", socket))
		if code != one.status || !strings.Contains(out+said, one.want) {
			t.Errorf("%s %s: status %d: %s%s", one.verb, one.flow, code, out, said)
		}
	}
}
