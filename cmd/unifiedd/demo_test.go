package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/testenv"
)

// demoProgram is a demo in a separate process.
type demoProgram struct {
	*exec.Cmd
	out bytes.Buffer
	dir string
}

func startDemo(t *testing.T) *demoProgram {
	t.Helper()
	testenv.Root(t)
	d := &demoProgram{dir: testenv.DiskDir(t)}
	d.Cmd = exec.Command(testenv.Tool(t, "unifiedd"), "demo", "--dir", d.dir, "--time", "3s", "--flow-test", testenv.Program(t, "selftests/unified-flow-test"))
	d.Stdout, d.Stderr = &d.out, &d.out
	testenv.Must(t, d.Start())
	t.Cleanup(func() { _ = d.Process.Kill(); _ = d.Wait() })
	return d
}

// namespaces returns the demo's namespaces that exist.
func (d *demoProgram) namespaces() []string {
	found, _ := filepath.Glob(fmt.Sprintf("/run/netns/unifiedd-demo-%d-*", d.Process.Pid))
	return found
}

// nothingLeft fails the test if the demo left anything behind.
func (d *demoProgram) nothingLeft(t *testing.T) {
	t.Helper()
	files, err := os.ReadDir(d.dir)
	if left := d.namespaces(); len(left) > 0 || len(files) > 0 || err != nil {
		t.Errorf("left behind: %v, %v: %v", left, files, err)
	}
}

func TestDemo(t *testing.T) {
	testenv.Long(t, "the demo takes half a minute")
	d := startDemo(t)
	if err := d.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, &d.out)
	}
	for _, want := range []string{"packed", "slot", "tshark, capinfos, tcpdump", "network to RDMA", "RDMA to RDMA",
		"led, was killed, came back", "took over", "The longest time without one was", "It adds up"} {
		if !strings.Contains(d.out.String(), want) {
			t.Errorf("the demo does not say %q:\n%s", want, &d.out)
		}
	}
	d.nothingLeft(t)
}

// TestDemoKilledAndInterrupted: a killed demo leaves behind what it has made. The next demo removes
// it, even if it is interrupted.
func TestDemoKilledAndInterrupted(t *testing.T) {
	testenv.Long(t, "no more races than in a capture")
	killed := startDemo(t)
	testenv.Wait(t, time.Minute, "the first demo's namespaces", func() bool { return len(killed.namespaces()) == 2 })
	testenv.Must(t, killed.Process.Kill())
	_ = killed.Wait()
	next := startDemo(t)
	testenv.Wait(t, time.Minute, "the second demo's namespaces", func() bool { return len(next.namespaces()) == 2 })
	time.Sleep(time.Second) // some time into the capture
	testenv.Must(t, next.Process.Signal(unix.SIGINT))
	err := next.Wait()
	if next.ProcessState.ExitCode() != exitFailed || !strings.Contains(next.out.String(), "interrupted") {
		t.Errorf("the interrupted demo ended with %v:\n%s", err, &next.out)
	}
	killed.nothingLeft(t)
	next.nothingLeft(t)
}
