package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// TestOrphans: a capture is process 1, as in a container, or the parent of one that has fewer rights is. A process that a command
// of -z leaves behind does not stay as a zombie, and the capture's own wait for the command has its status.
func TestOrphans(t *testing.T) {
	testenv.Root(t)
	for name, with := range map[string][]string{"parent": nil, "alone": {"setpriv", "--bounding-set=-all,+net_raw,+net_admin,+bpf,+perfmon,+ipc_lock"}} {
		t.Run(name, func(t *testing.T) {
			p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
			heavily(t, p)
			dir := testenv.DiskDir(t)
			script, orphan, gone := filepath.Join(dir, "script"), filepath.Join(dir, "orphan"), filepath.Join(dir, "gone")
			for name, text := range map[string]string{
				script: fmt.Sprintf("[ -e %[1]s/once ] && exit 3; : >%[1]s/once\n(while kill -0 $$ 2>/dev/null; do sleep 0.01; done; exec %[2]s) &\nexit 3\n", dir, orphan),
				orphan: fmt.Sprintf(": >%s\n", gone),
			} {
				testenv.Must(t, os.WriteFile(name, []byte("#!/bin/sh\n"+text), 0o755))
			}
			said := newSafeBuffer(t)
			args := append([]string{"--pid", "--fork", "--kill-child", "--mount-proc"}, with...)
			cmd := p.B.Command("unshare", append(args, program(t), "capture", "-Z", "root", "-i", p.B.Ifname, "-w", filepath.Join(dir, "out"), "-C", "1", "-z", script)...)
			cmd.Stderr = said.file
			testenv.Must(t, cmd.Start())
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			testenv.Wait(t, testenv.Within(30*time.Second), "an orphan", func() bool { _, err := os.Stat(gone); return err == nil })
			first := childrenOf(t, cmd.Process.Pid)
			if len(first) != 1 {
				t.Fatalf("unshare has the children %v: %s", first, said)
			}
			testenv.Wait(t, testenv.Within(20*time.Second), "the orphan to be gone", func() bool {
				for _, pid := range childrenOf(t, first[0]) {
					if comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.TrimSpace(string(comm)) == "orphan" {
						return false
					}
				}
				return true
			})
			testenv.Wait(t, testenv.Within(20*time.Second), "the status of a command", func() bool { return strings.Contains(said.String(), ": exit status 3\n") })
			if text := said.String(); strings.Contains(text, "no child processes") {
				t.Error(text)
			}
			testenv.Must(t, syscall.Kill(first[0], syscall.SIGTERM))
			if err := cmd.Wait(); err != nil {
				t.Errorf("the capture ends with %v: %s", err, said)
			}
		})
	}
}

// childrenOf returns the children of a process, zombies among them.
func childrenOf(t *testing.T, pid int) (all []int) {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	testenv.Must(t, err)
	for _, name := range lists {
		text, _ := os.ReadFile(name) // the thread may have ended
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			testenv.Must(t, err)
			all = append(all, child)
		}
	}
	return all
}
