package attached_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// socket is where the daemon of the examples listens.
var socket string

// TestMain runs tests and examples beside a daemon. Without root, who may lock memory, and in an
// emulator, which cannot build the daemon, they do not run.
func TestMain(m *testing.M) {
	if os.Getuid() != 0 || os.Getenv("UNIFIEDD_EMULATED") != "" {
		if err := flag.Set("test.skip", "^(Example|TestHotPath)"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "unifiedd-attached-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status, err := beside(dir, m.Run)
	if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

// flows is the configuration of the daemon. The tests have programs of their own: for some milliseconds after a program has
// left, its name is in use.
const flows = `
control: {socket: %[1]s/control.sock}
region: {size: 32MiB, pages: ordinary}
attach:
  socket: %[1]s/attach.sock
  programs:
    - {name: strategy, user: root, in: 4MiB}
    - {name: orders, user: root, out: 2MiB}
    - {name: reader, user: root, in: 2MiB}
    - {name: handler, user: root}
    - {name: monitor, user: root}
    - {name: hot, user: root, in: 1MiB, out: 1MiB}
    - {name: cool, user: root}
  channels:
    - {name: hot, writer: hot, readers: [{program: cool, policy: wait}]}
    - {name: book, writer: handler, readers: [{program: monitor, policy: wait}]}
flows:
  - {name: md, from: {generate: 64, rate: 5000}, to: {attach: strategy, policy: drop_newest}}
  - {name: orders, from: {attach: orders, message: 1KiB}, to: {file: %[1]s/orders, acknowledge: durable, segment: {size: 8MiB}}}
  - {name: image, from: {file: %[1]s/image}, to: {attach: reader}}
  - {name: hot-in, from: {generate: 64, rate: 50000}, to: {attach: hot}}
  - {name: hot-out, from: {attach: hot, message: 64}, to: {discard: true}}
`

// beside runs the tests beside a daemon.
func beside(dir string, run func() int) (status int, err error) {
	image := make([]byte, 64<<10)
	copy(image[4096:], "second block")
	file := filepath.Join(dir, "unifiedd.yaml")
	err = errors.Join(os.WriteFile(filepath.Join(dir, "image"), image, 0o600), os.WriteFile(file, fmt.Appendf(nil, flows, dir), 0o600))
	if err != nil {
		return 1, err
	}
	program, err := testenv.FindProgram("cmd/unifiedd")
	if err != nil {
		return 1, err
	}
	var said bytes.Buffer
	daemon := exec.Command(program, "run", "-c", file)
	daemon.Stderr = &said
	if err := daemon.Start(); err != nil {
		return 1, err
	}
	socket = filepath.Join(dir, "attach.sock")
	status = 1
	if err = running(filepath.Join(dir, "control.sock"), 5); err == nil {
		status = run()
	}
	err = errors.Join(err, daemon.Process.Signal(os.Interrupt), daemon.Wait())
	if err != nil || status != 0 {
		fmt.Fprintf(os.Stderr, "%s", &said)
	}
	return status, err
}

// running waits until a number of the daemon's flows run.
func running(control string, n int) error {
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", control)
	}}}
	defer client.CloseIdleConnections()
	var body []byte
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		answer, err := client.Get("http://unifiedd/status")
		if err != nil {
			continue // it does not listen yet
		}
		body, err = io.ReadAll(answer.Body)
		_ = answer.Body.Close() // it is read
		if text := strings.ReplaceAll(string(body), " ", ""); err == nil && strings.Count(text, `"state":"running"`) >= n {
			return nil
		}
	}
	return fmt.Errorf("the daemon's flows do not run: %s", body)
}
