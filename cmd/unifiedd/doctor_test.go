package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/doctor"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// asNobody returns a command line of this program for a user without rights.
func asNobody(args ...string) *exec.Cmd {
	return &exec.Cmd{
		Path:        "/proc/self/exe", // the user may lack access to the program's path
		Args:        append([]string{"unifiedd"}, args...),
		Dir:         "/",
		SysProcAttr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}},
	}
}

// TestDoctorOfNobody: without rights the doctor still answers, and names the missing rights.
func TestDoctorOfNobody(t *testing.T) {
	testenv.Root(t)
	cmd := asNobody("doctor", "--json", "-i", "lo", "--disk", "/")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != exitFailed {
		t.Fatalf("doctor: %v, want status %d\n%s", err, exitFailed, &errs)
	}
	var r doctor.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for name, want := range map[string]string{
		"AF_XDP": "CAP_NET_RAW", "XDP program": "CAP_BPF",
		"capabilities": "setcap cap_net_admin,cap_net_raw,cap_ipc_lock,cap_perfmon,cap_bpf+ep", "writable": "give the directory to the user",
	} {
		c := find(t, &r, name)
		if c.State != doctor.Fail || !strings.Contains(c.Detail+c.Remedy, want) {
			t.Errorf("%s is %+v, want it to fail and say %q", name, c, want)
		}
	}
}

func find(t *testing.T, r *doctor.Report, name string) doctor.Check {
	t.Helper()
	for _, s := range r.Sections {
		if i := slices.IndexFunc(s.Checks, func(c doctor.Check) bool { return c.Name == name }); i >= 0 {
			return s.Checks[i]
		}
	}
	t.Fatalf("there is no check %q in %+v", name, r)
	return doctor.Check{}
}

// TestDoctorOfPauses: the doctor finds pauses of its process that are longer than a group may wait for its
// leader, and names the setting.
func TestDoctorOfPauses(t *testing.T) {
	dir := testenv.DiskDir(t)
	file := filepath.Join(dir, "unifiedd.yaml")
	text := fmt.Sprintf(`
region: {size: 64MiB, pages: ordinary}
flows:
  - name: orders
    from: {rdma: "roce:lo", listen: "127.0.0.1:7471", message: 1KiB}
    to:
      file: %s/orders
      acknowledge: durable
      group:
        name: orders
        self: a
        members:
          - {name: a, address: "127.0.0.1:7491", clients: "127.0.0.1:7471"}
          - {name: b, address: "127.0.0.2:7491", clients: "127.0.0.2:7471"}
          - {name: c, address: "127.0.0.3:7491", clients: "127.0.0.3:7471"}
`, dir)
	testenv.Must(t, os.WriteFile(file, []byte(text), 0o600))
	cmd := exec.Command(testenv.Tool(t, "unifiedd"), "doctor", "--json", "-c", file)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	testenv.Must(t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }() // the status says what else is wrong with this machine
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	for over := false; !over; { // the doctor measures in one of these periods
		_ = cmd.Process.Signal(syscall.SIGSTOP) // it may have ended
		time.Sleep(150 * time.Millisecond)
		_ = cmd.Process.Signal(syscall.SIGCONT)
		select {
		case <-ended:
			over = true
		case <-time.After(100 * time.Millisecond):
		}
	}
	var r doctor.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v\n%s%s", err, &out, &errs)
	}
	if c := find(t, &r, "to.group.suspect"); c.State != doctor.Warn || !strings.Contains(c.Remedy, "set to.group.suspect to more") {
		t.Errorf("a process that is stopped for 150 ms at a time, and suspect is 100 ms: %+v", c)
	}
}
