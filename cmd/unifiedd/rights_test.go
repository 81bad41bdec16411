package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/privsep"
	"github.com/unifiedd/unifiedd/internal/caps"
	"github.com/unifiedd/unifiedd/internal/testenv"
)

// program returns the path of this test program under a name that makes it run as unifiedd.
func program(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	path := filepath.Join(t.TempDir(), "unifiedd")
	testenv.Must(t, err, os.Symlink(self, path))
	return path
}

// other is the user for captures and replays in tests. Every system has it.
const other = "daemon"

// command runs the program in the namespace of an end, as another user who may use the files in the
// arguments. It ends after at most a minute.
func command(t *testing.T, e *testenv.End, args ...string) *exec.Cmd {
	t.Helper()
	for _, arg := range args {
		if filepath.IsAbs(arg) && arg != os.DevNull {
			permit(t, arg)
		}
	}
	if !slices.Contains(args, "-Z") {
		args = slices.Insert(args, 1, "-Z", other)
	}
	return commandAsIs(t, e, nil, args...)
}

// permit lets the other user traverse to a path under the temporary directory or the checkout, and
// write to the directory of the path.
func permit(t *testing.T, path string) {
	t.Helper()
	dir := filepath.Dir(path)
	if strings.HasPrefix(filepath.Base(dir), "test-") || strings.HasPrefix(dir, os.TempDir()+"/") || strings.HasPrefix(dir, "/dev/shm/") {
		u, err := user.Lookup(other)
		testenv.Must(t, err)
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		testenv.Must(t, os.Chown(dir, uid, gid))
		if info, err := os.Stat(path); err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
			testenv.Must(t, os.Chown(path, uid, gid))
		}
	}
	for ; strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		testenv.Must(t, os.Chmod(dir, 0o755))
	}
}

// commandAsIs is command with unchanged arguments and additional environment variables. It omits
// the variables in which sudo names the user that runs the tests.
func commandAsIs(t *testing.T, e *testenv.End, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := e.Command("timeout", append([]string{"60", program(t)}, args...)...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SUDO_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// finish runs a command until it ends.
func finish(t *testing.T, cmd *exec.Cmd) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// own returns the process of the program itself, below its parents, once it has only the rights
// that it needs.
func own(t *testing.T, cmd *exec.Cmd) (s caps.Status, pid int) {
	t.Helper()
	testenv.Wait(t, 20*time.Second, "a process that has given up its rights", func() bool {
		for pid = cmd.Process.Pid; ; {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
			if err != nil {
				return false
			}
			threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
			for _, file := range threads { // the kernel lists a child with the thread that started it
				if more, _ := os.ReadFile(file); len(more) > 0 {
					text = more
				}
			}
			if n, _ := fmt.Sscan(string(text), &pid); n != 1 {
				break
			}
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return false
		}
		s, err = caps.Parse(string(text))
		return err == nil && s.Seccomp == 2
	})
	return s, pid
}

// facing starts a capture or a replay, reads the rights of its own process, and ends it when it has begun and done is
// true; done may be nil.
func facing(t *testing.T, cmd *exec.Cmd, done func() bool) caps.Status {
	t.Helper()
	var said lines
	cmd.Stderr = &said
	testenv.Must(t, cmd.Start())
	s, pid := own(t, cmd)
	t.Logf("%s: Uid %d, CapEff %016x, CapBnd %016x, NoNewPrivs %v, Seccomp %d", strings.Join(cmd.Args, " "), s.UID.Effective, uint64(s.Effective), uint64(s.Bounding), s.NoNewPrivs, s.Seccomp)
	testenv.Wait(t, time.Minute, strings.Join(cmd.Args, " "), func() bool {
		return (said.has("capturing on") || said.has("sending by")) && (done == nil || done())
	})
	if err := errors.Join(unix.Kill(pid, unix.SIGINT), cmd.Wait()); err != nil {
		t.Errorf("%v: %v: %s", cmd.Args, err, &said.said)
	}
	return s
}

// sudo are the variables in which sudo(8) names its caller.
var sudo = []string{"SUDO_UID=65534", "SUDO_GID=65534"}

// TestCommandRights: capture and replay run as the requested user, and the processes that handle
// network packets have only the rights that they need.
func TestCommandRights(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	dir := testenv.DiskDir(t)
	in := filepath.Join(dir, "in.pcap")
	record(t, p, in, testenv.Stream(&p.A, &p.B, 5000, 0, 300, 10))
	background(t, p)
	permit(t, in)
	testenv.Must(t, os.Chmod(dir, 0o777))
	ours := 0
	if u, err := user.Lookup("unifiedd"); err == nil {
		ours, _ = strconv.Atoi(u.Uid)
	}
	for i, c := range []struct {
		env, args []string
		uid       int
		keep      caps.Set
	}{
		{nil, []string{"-Z", "nobody"}, 65534, privsep.Needed},
		{sudo, nil, 65534, privsep.Needed},
		{sudo, []string{"-Z", "daemon"}, 1, privsep.Needed},
		{sudo, []string{"-Z", "root"}, 0, privsep.Needed | caps.DACOverride},
		{[]string{"SUDO_UID=0"}, nil, ours, privsep.Needed},
	} {
		if testing.Short() && i > 1 { // the other users have the same rights, but for root
			break
		}
		file := filepath.Join(dir, fmt.Sprintf("out%d.pcapng", i))
		for _, cmd := range []*exec.Cmd{
			commandAsIs(t, &p.B, c.env, append([]string{"capture", "-i", p.B.Ifname, "--take", "--ring", "512", "-w", file}, c.args...)...),
			commandAsIs(t, &p.A, c.env, append([]string{"replay", "-i", p.A.Ifname, "--pps", "100", "--loop", "0", in}, c.args...)...),
		} {
			s := facing(t, cmd, nil)
			id := caps.ID{Real: uint32(c.uid), Effective: uint32(c.uid), Saved: uint32(c.uid), FS: uint32(c.uid)}
			if s.UID != id || s.Reach() != c.keep || s.Effective != c.keep || s.Bounding != c.keep || !s.NoNewPrivs || s.Seccomp != 2 {
				t.Errorf("%v is %+v", cmd.Args, s)
			}
		}
		if info, err := os.Stat(file); err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != c.uid {
			t.Errorf("%v: %v %v, want a file of user %d", c.args, info, err, c.uid)
		}
	}
}

// TestCommandDefaultUser: a command that root starts becomes the caller of sudo, else the daemon's
// user if it exists, else stays root.
func TestCommandDefaultUser(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	dir := testenv.DiskDir(t)
	reach(t, dir)
	testenv.Must(t, os.Chmod(dir, 0o777))
	users, err := os.ReadFile("/etc/passwd")
	testenv.Must(t, err)
	lines := slices.DeleteFunc(strings.SplitAfter(string(users), "\n"), func(l string) bool { return strings.HasPrefix(l, "unifiedd:") })
	without, with := filepath.Join(dir, "without"), filepath.Join(dir, "with")
	writeOpen(t, without, []byte(strings.Join(lines, "")))
	writeOpen(t, with, []byte(strings.Join(lines, "")+"unifiedd:x:64998:64998::/:/usr/sbin/nologin\n"))
	for i, c := range []struct {
		users string
		env   []string
		args  []string
		uid   uint32
	}{{without, nil, nil, 0}, {with, nil, nil, 64998}, {with, sudo, nil, 65534}, {without, sudo, nil, 65534}, {with, nil, []string{"-Z", "daemon"}, 1}} {
		file := filepath.Join(dir, fmt.Sprintf("out%d.pcapng", i))
		args := append([]string{"capture", "-i", p.B.Ifname, "--take", "--ring", "512", "-w", file}, c.args...)
		cmd := commandAsIs(t, &p.B, c.env, args...)
		at := slices.Index(cmd.Args, "timeout")
		cmd.Args = slices.Insert(cmd.Args, at, "unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc/passwd && exec "$@"`, c.users)
		s := facing(t, cmd, nil)
		info, err := os.Stat(file)
		testenv.Must(t, err)
		if owner := info.Sys().(*syscall.Stat_t).Uid; s.UID.Effective != c.uid || s.Reach() != privsep.Needed || owner != c.uid {
			t.Errorf("%s, %v: user %d with %v, file of %d, want %d", c.users, c.env, s.UID.Effective, s.Reach(), owner, c.uid)
		}
	}
}

// TestCommandRefused: if the user may not do something, the error names the user, the action and
// the remedy.
func TestCommandRefused(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	dir := testenv.DiskDir(t)
	in, pipe := filepath.Join(dir, "in.pcap"), filepath.Join(dir, "pipe")
	record(t, p, in, testenv.Stream(&p.A, &p.B, 5000, 0, 300, 10))
	testenv.Must(t, os.Chmod(in, 0o600), unix.Mkfifo(pipe, 0o600))
	for d := dir; strings.HasPrefix(d, os.TempDir()+"/"); d = filepath.Dir(d) {
		testenv.Must(t, os.Chmod(d, 0o755))
	}
	out := filepath.Join(dir, "out.pcapng")
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"capture", "-i", p.B.Ifname, "-w", out, "-C", "1", "-Z", "nobody"}, []string{"write to " + dir + " as user nobody: permission denied", "-Z root"}},
		{[]string{"capture", "-i", p.B.Ifname, "-w", pipe, "-Z", "nobody"}, []string{"write to " + pipe + " as user nobody: permission denied", "-Z root"}},
		{[]string{"replay", "-i", p.A.Ifname, in, "-Z", "nobody"}, []string{"read " + in + " as user nobody: permission denied", "-Z root"}},
		{[]string{"replay", "-i", p.A.Ifname, in, "-Z", "nobody-is-called-so"}, []string{"-Z: ", "nobody-is-called-so"}},
	} {
		e := &p.B
		if c.args[0] == "replay" {
			e = &p.A
		}
		status, _, stderr := finish(t, commandAsIs(t, e, nil, c.args...))
		for _, want := range c.want {
			if status == 0 || !strings.Contains(stderr, want) {
				t.Errorf("%v: status %d, want the error to say %q: %s", c.args, status, want, stderr)
			}
		}
	}
	if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a refused capture left %s: %v", out, err)
	}
	if status, _, stderr := finish(t, commandAsIs(t, &p.A, nil, "replay", "-i", p.A.Ifname, "--topspeed", in, "-Z", "root")); status != 0 {
		t.Errorf("with root's rights: status %d: %s", status, stderr)
	}
}

// TestCommandMakesFile: if only root may make or replace the capture's file, the parent process
// makes it for the user, as tcpdump does.
func TestCommandMakesFile(t *testing.T) {
	testenv.Root(t)
	testenv.Leaks(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	background(t, p)
	dir := testenv.DiskDir(t)
	file := filepath.Join(dir, "out.pcapng")
	for _, test := range []struct {
		packets int
		filter  string
		dir     fs.FileMode
		file    fs.FileMode
		more    []string
	}{
		{70, "udp port 5000", 0o700, 0o640, nil},
		{30, "udp", 0o700, 0o604, []string{"--mode", "0604", "--keep-free", "1MiB", "--layout", "slot"}}, // another file is there
		{0, "udp port 1", 0o700, 0o640, nil},
		{20, "udp", 0o777 | fs.ModeSticky, 0o640, nil},
	} {
		testenv.Must(t, os.Chmod(dir, test.dir))
		if test.dir&fs.ModeSticky != 0 { // as /tmp: root owns the existing file
			testenv.Must(t, os.Chown(file, 0, 0))
		}
		args := append([]string{"capture", "-i", p.B.Ifname, "--take", "--ring", "512", "-w", file, "-Z", "nobody", "-c", strconv.Itoa(max(test.packets, 1))}, test.more...)
		cmd := commandAsIs(t, &p.B, nil, append(args, test.filter)...)
		if test.packets == 0 {
			facing(t, cmd, nil)
		} else if status, _, stderr := finish(t, cmd); status != 0 || !strings.Contains(stderr, fmt.Sprintf("%d packets captured", test.packets)) {
			t.Errorf("status %d: %s", status, stderr)
		}
		info, err := os.Stat(file)
		testenv.Must(t, err)
		if st := info.Sys().(*syscall.Stat_t); st.Uid != 65534 || info.Mode() != test.file {
			t.Errorf("%v: the file is of user %d, with mode %v", test, st.Uid, info.Mode())
		}
		if n := strings.Count(p.A.Run(t, "tcpdump", "-nr", file), "UDP"); n != test.packets {
			t.Errorf("%v: tcpdump reads %d packets, want %d", test, n, test.packets)
		}
		if names := inDir(t, dir); len(names) != 1 {
			t.Errorf("%v: there are %v", test, names)
		}
	}
}

// TestPostrotateRights: the command of -z runs as the capture's user, without the capture's capabilities.
func TestPostrotateRights(t *testing.T) {
	testenv.Root(t)
	p := testenv.NewPair(t, testenv.PairOptions{NoAddresses: true})
	heavily(t, p)
	dir := testenv.DiskDir(t)
	script := filepath.Join(dir, "after")
	testenv.Must(t, os.WriteFile(script, []byte("#!/bin/sh\ncp /proc/self/status $1.rights.part && mv $1.rights.part $1.rights\n"), 0o755))
	if status, _, stderr := captureOn(t, p, "-w", filepath.Join(dir, "out"), "-C", "1", "-z", script, "-c", "3000"); status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	testenv.Wait(t, 10*time.Second, "the command", func() bool {
		found, _ := filepath.Glob(filepath.Join(dir, "*.rights"))
		return len(found) > 0
	})
	found, err := filepath.Glob(filepath.Join(dir, "*.rights"))
	testenv.Must(t, err)
	text, err := os.ReadFile(found[0])
	testenv.Must(t, err)
	s, err := caps.Parse(string(text))
	if err != nil || s.UID.Effective != 1 || s.Reach().Minus(s.Inheritable) != 0 || !s.NoNewPrivs || s.Seccomp != 2 {
		t.Errorf("%v: it is %+v", err, s)
	}
}
