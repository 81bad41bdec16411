package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

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
