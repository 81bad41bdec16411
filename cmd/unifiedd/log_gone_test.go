package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestOutputReaderGone: a command whose output nobody reads any more ends by SIGPIPE, without a message.
func TestOutputReaderGone(t *testing.T) {
	program := testenv.Program(t, "cmd/unifiedd")
	for _, args := range [][]string{{"version"}, {"help", "capture"}} {
		read, write, err := os.Pipe()
		testenv.Must(t, err)
		testenv.Must(t, read.Close())
		var said bytes.Buffer
		cmd := exec.Command(program, args...)
		cmd.Stdout, cmd.Stderr = write, &said
		_ = cmd.Run()
		testenv.Must(t, write.Close())
		if s := cmd.ProcessState.Sys().(syscall.WaitStatus); !s.Signaled() || s.Signal() != syscall.SIGPIPE || said.Len() > 0 {
			t.Errorf("%v: %v: %s", args, cmd.ProcessState, &said)
		}
	}
}

// TestLogReaderGone: the process that reads what a command writes to stderr ends. That costs the lines, and nothing else,
// whether the command was started with SIGPIPE ignored, as by systemd, or not.
func TestLogReaderGone(t *testing.T) {
	testenv.Root(t)
	program := testenv.Program(t, "cmd/unifiedd")
	for name, shell := range map[string]string{"default": `exec "$@"`, "ignored": `trap "" PIPE; exec "$@"`} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			socket, file := filepath.Join(dir, "control.sock"), filepath.Join(dir, "test.yaml")
			configure := func(rate int) {
				text := fmt.Sprintf("user: root\nregion: {size: 16MiB, pages: ordinary, extents: 0}\ncontrol: {socket: %s}\nflows: [{name: f, from: {generate: 64, rate: %d}, to: {discard: true}}]\n", socket, rate)
				testenv.Must(t, os.WriteFile(file, []byte(text), 0o600))
			}
			configure(100)
			read, write, err := os.Pipe()
			testenv.Must(t, err)
			cmd := exec.Command("sh", "-c", shell, "sh", program, "run", "-c", file)
			cmd.Stderr = write
			testenv.Must(t, cmd.Start())
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			testenv.Must(t, write.Close())
			for lines := bufio.NewScanner(read); ; {
				if !lines.Scan() {
					t.Fatal("the daemon ends before a flow runs")
				}
				if strings.Contains(lines.Text(), "flow=f") {
					break
				}
			}
			testenv.Must(t, read.Close())
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", socket)
			}}}
			post := func(path string) (code int, err error) {
				answer, err := client.Post("http://unifiedd"+path, "", nil)
				if err != nil {
					return 0, err
				}
				return answer.StatusCode, answer.Body.Close()
			}
			testenv.Wait(t, testenv.Within(time.Minute), "the control socket", func() bool { _, err := os.Stat(socket); return err == nil })
			for rate := 200; rate < 500; rate += 100 { // each reload is a line of the log
				configure(rate)
				testenv.Wait(t, testenv.Within(time.Minute), "a reload", func() bool {
					code, err := post("/reload")
					if err != nil || code != http.StatusOK && code != http.StatusConflict { // a conflict: the flow is still starting
						t.Fatalf("a reload is answered with %d: %v", code, err)
					}
					return code == http.StatusOK
				})
			}
			testenv.Must(t, cmd.Process.Signal(syscall.SIGTERM))
			if err := cmd.Wait(); err != nil {
				t.Errorf("the daemon ends with %v", err)
			}
		})
	}
}
