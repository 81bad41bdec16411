package privsep

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/caps"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
)

// nobody is the number of a user without rights. Every system allows it.
const nobody = 65534

// play runs the test binary in a role, in its own network namespace.
func play(t *testing.T, role string, o Options) *exec.Cmd {
	t.Helper()
	testenv.Root(t)
	text, err := json.Marshal(o)
	testenv.Must(t, err)
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{"daemon-in-test"}
	cmd.Env = append(os.Environ(), roleEnv+"="+role, optionsEnv+"="+string(text), "WATCHDOG_PID=1")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	return cmd
}

// finish runs a process to its end and compares the status.
func finish(t *testing.T, cmd *exec.Cmd, want int) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		t.Fatalf("exit status %d, want %d\n%s%s", got, want, &out, &errs)
	}
	return out.String(), errs.String()
}

func learn(t *testing.T, cmd *exec.Cmd) facts {
	t.Helper()
	out, _ := finish(t, cmd, 0)
	var f facts
	if err := json.Unmarshal([]byte(out), &f); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return f
}

// reduced checks that every thread of a daemon has the kept capabilities, and cannot gain others.
func (f facts) reduced(t *testing.T, keep caps.Set, uid uint32) {
	t.Helper()
	want := caps.Status{
		UID: caps.ID{Real: uid, Effective: uid, Saved: uid, FS: uid}, GID: caps.ID{Real: uid, Effective: uid, Saved: uid, FS: uid},
		Inheritable: keep, Permitted: keep, Effective: keep, Bounding: keep, Ambient: keep, NoNewPrivs: true, Seccomp: 2,
	}
	if len(f.Threads) < 5 {
		t.Errorf("%d threads, want several", len(f.Threads))
	}
	for i, got := range f.Threads {
		if got != want {
			t.Errorf("thread %d is\n%+v\nwant\n%+v", i, got, want)
		}
	}
	if f.Gained != keep {
		t.Errorf("having asked for everything, a thread has %v, want %v", f.Gained, keep)
	}
}

// TestUser: root starts a daemon of another user, which can do its work and nothing else.
func TestUser(t *testing.T) {
	base := openDir(t)
	made, there := filepath.Join(base, "a", "b"), filepath.Join(base, "there")
	testenv.Must(t, os.Mkdir(there, 0o700), os.Chown(there, nobody, nobody))
	f := learn(t, play(t, "report", Options{User: strconv.Itoa(nobody), Keep: Needed, Dirs: []string{made, there}}))
	f.reduced(t, Needed, nobody)
	if f.Socket != "" || f.Program != "" {
		t.Errorf("AF_XDP socket: %q, XDP program: %q, want both to work", f.Socket, f.Program)
	}
	if !strings.Contains(f.Etc, "permission denied") {
		t.Errorf("a file in /etc: %q, want it refused", f.Etc)
	}
	if f.Missing != 0 || f.Marker != "" || f.Watchdog != "" || f.Name != "daemon-in-test" || !f.Session {
		t.Errorf("the daemon finds %+v", f)
	}
	if !slices.Equal(f.Dirs, []string{"", ""}) {
		t.Errorf("writing to its directories: %q", f.Dirs)
	}
	if slices.Contains(f.Groups, 0) {
		t.Errorf("the daemon is still in the groups %v", f.Groups)
	}
	for _, dir := range []string{made, filepath.Dir(made)} {
		if info, err := os.Stat(dir); err != nil || info.Sys().(*syscall.Stat_t).Uid != nobody || info.Mode().Perm() != 0o750 {
			t.Errorf("%s: %v %v, want it given to the user", dir, info, err)
		}
	}
}

// openDir makes a temporary directory whose path any user may traverse.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		testenv.Must(t, os.Chmod(d, 0o755))
	}
	return dir
}

// TestRoot: without a user the daemon stays user 0, which gives it no rights by itself.
func TestRoot(t *testing.T) {
	f := learn(t, play(t, "report", Options{Keep: Needed}))
	f.reduced(t, Needed, 0)
	if f.Socket != "" || f.Program != "" {
		t.Errorf("AF_XDP socket: %q, XDP program: %q, want both to work", f.Socket, f.Program)
	}
}

// TestKeepLess: the daemon cannot use a capability that it does not keep.
func TestKeepLess(t *testing.T) {
	f := learn(t, play(t, "report", Options{User: strconv.Itoa(nobody), Keep: caps.IPCLock}))
	f.reduced(t, caps.IPCLock, nobody)
	if f.Socket == "" || f.Program == "" {
		t.Errorf("AF_XDP socket: %q, XDP program: %q, want both to be refused", f.Socket, f.Program)
	}
}

// TestMissing: Start names the capabilities that the daemon lacks because its parent process lacks them.
func TestMissing(t *testing.T) {
	cmd := play(t, "report", Options{User: strconv.Itoa(nobody), Keep: Needed})
	limit(cmd, "-net_raw")
	if f := learn(t, cmd); f.Missing != caps.NetRaw {
		t.Errorf("missing is %v, want CAP_NET_RAW", f.Missing)
	}
}

// limit runs a command under setpriv(1) without some capabilities, in setpriv's form:
// "-net_raw,-setpcap". User 0 keeps its usual meaning.
func limit(cmd *exec.Cmd, drop string) {
	cmd.Args = append([]string{"setpriv", "--bounding-set", drop, "--inh-caps", drop, "/proc/" + strconv.Itoa(os.Getpid()) + "/exe"}, cmd.Args[1:]...)
	cmd.Path = "/usr/bin/setpriv"
}

// TestWithoutSetpcap: if the parent process cannot change the bounding set, no_new_privs keeps the
// daemon from gaining capabilities.
func TestWithoutSetpcap(t *testing.T) {
	for _, user := range []string{"", strconv.Itoa(nobody)} {
		cmd := play(t, "report", Options{User: user, Keep: Needed})
		limit(cmd, "-setpcap")
		f := learn(t, cmd)
		for _, s := range f.Threads {
			if s.Reach() != Needed || !s.NoNewPrivs {
				t.Errorf("user %q: a thread is %+v", user, s)
			}
		}
		if f.Gained != Needed {
			t.Errorf("user %q: having asked for everything, a thread has %v", user, f.Gained)
		}
	}
}

// TestUnprivileged: a process without surplus rights becomes the daemon itself.
func TestUnprivileged(t *testing.T) {
	cmd := play(t, "report", Options{Keep: Needed})
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_RAW, unix.CAP_BPF}
	f := learn(t, cmd)
	if want := caps.NetAdmin | caps.Perfmon | caps.IPCLock; f.Missing != want {
		t.Errorf("missing is %v, want %v", f.Missing, want)
	}
	if f.Session {
		t.Error("there was a parent process, and it was not needed")
	}
}

// TestTooMany: a process of the right user with a surplus capability loses that capability.
func TestTooMany(t *testing.T) {
	cmd := play(t, "report", Options{User: strconv.Itoa(nobody), Keep: Needed})
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_RAW, unix.CAP_BPF, unix.CAP_SYS_ADMIN}
	f := learn(t, cmd)
	for _, s := range f.Threads {
		if s.Reach() != caps.NetRaw|caps.BPF || !s.NoNewPrivs {
			t.Errorf("a thread is %+v", s)
		}
	}
}

// TestMarkerIsNotTrusted: if the environment has the marker, a process with too many rights refuses
// to be the daemon.
func TestMarkerIsNotTrusted(t *testing.T) {
	for _, test := range []struct {
		user string
		keep caps.Set
		as   *syscall.Credential
		want string
	}{
		{"", Needed, nil, "a thread still has CAP_CHOWN"},
		{strconv.Itoa(nobody), Needed, nil, "a thread still has CAP_CHOWN"},
		{"", 1<<63 - 1, nil, "no_new_privs is not set"},
		{"", Needed, &syscall.Credential{Uid: nobody, Gid: nobody}, "no_new_privs is not set"},
	} {
		cmd := play(t, "report", Options{User: test.user, Keep: test.keep})
		cmd.Env = append(cmd.Env, marker+"=1")
		cmd.SysProcAttr.Credential = test.as
		if _, errs := finish(t, cmd, 99); !strings.Contains(errs, "refuse to run") || !strings.Contains(errs, test.want) {
			t.Errorf("user %q: %q, want it to say %q", test.user, errs, test.want)
		}
	}
}

// TestVerify: a daemon refuses to run if one of its threads has a surplus right of any kind.
func TestVerify(t *testing.T) {
	u := &identity{uid: 7}
	good := caps.Status{UID: caps.ID{Real: 7, Effective: 7, Saved: 7, FS: 7}, NoNewPrivs: true, Permitted: caps.BPF, Bounding: 1<<41 - 1}
	o := Options{Keep: caps.BPF}
	testenv.Checkf(t, o.verify(good, u), "a good thread is refused")
	for name, spoil := range map[string]func(*caps.Status){
		"effective":   func(s *caps.Status) { s.Effective |= caps.SysAdmin },
		"permitted":   func(s *caps.Status) { s.Permitted |= caps.SysAdmin },
		"inheritable": func(s *caps.Status) { s.Inheritable |= caps.SysAdmin },
		"ambient":     func(s *caps.Status) { s.Ambient |= caps.SysAdmin },
		"new privs":   func(s *caps.Status) { s.NoNewPrivs = false },
		"real user":   func(s *caps.Status) { s.UID.Real = 0 },
		"saved user":  func(s *caps.Status) { s.UID.Saved = 0 },
	} {
		bad := good
		if spoil(&bad); o.verify(bad, u) == nil {
			t.Errorf("%s: a bad thread is accepted: %+v", name, bad)
		}
	}
}

// TestRefused: Start reports what it cannot grant before it starts the daemon.
func TestRefused(t *testing.T) {
	locked := filepath.Join(openDir(t), "locked")
	testenv.Must(t, os.Mkdir(locked, 0o700))
	for _, test := range []struct {
		o    Options
		drop string // capabilities that setpriv drops
		as   *syscall.Credential
		want string
	}{
		{Options{User: "nobody-of-that-name"}, "", nil, "useradd --system nobody-of-that-name"},
		{Options{User: "0"}, "", &syscall.Credential{Uid: nobody, Gid: nobody}, "start as root, or as that user"},
		{Options{User: strconv.Itoa(nobody), Keep: Needed}, "-kill", nil, "become user 65534: that takes CAP_KILL"},
		{Options{User: strconv.Itoa(nobody), Dirs: []string{locked}}, "", nil, "install -d -o 65534 " + locked},
		{Options{User: strconv.Itoa(nobody), Dirs: []string{"/dev/null"}}, "", nil, "something else of that name"},
		{Options{Region: &umem.Config{Size: 1 << 45}}, "", &syscall.Credential{Uid: nobody, Gid: nobody}, "start as root"},
	} {
		cmd := play(t, "report", test.o)
		cmd.SysProcAttr.Credential = test.as
		if test.drop != "" {
			limit(cmd, test.drop)
		}
		if _, errs := finish(t, cmd, 99); !strings.Contains(errs, test.want) {
			t.Errorf("%+v: %q, want it to say %q", test.o, errs, test.want)
		}
	}
}

// TestStatus: the parent process exits with the daemon's status.
func TestStatus(t *testing.T) {
	finish(t, play(t, "fail", Options{Keep: Needed}), 42)
	finish(t, play(t, "die", Options{Keep: Needed}), 128+int(unix.SIGKILL))
}

// running is a parent process whose daemon waits.
type running struct {
	*exec.Cmd
	out    *bufio.Scanner
	daemon int
}

// begin starts a role and waits for the daemon's number.
func begin(t *testing.T, role string, o Options) *running {
	t.Helper()
	r := &running{Cmd: play(t, role, o)}
	out, err := r.StdoutPipe()
	testenv.Must(t, err)
	testenv.Must(t, out.(*os.File).SetReadDeadline(time.Now().Add(20*time.Second)))
	r.Stderr = os.Stderr
	testenv.Must(t, r.Start())
	t.Cleanup(func() { r.Process.Kill(); r.Wait() })
	r.out = bufio.NewScanner(out)
	r.daemon, err = strconv.Atoi(r.line())
	testenv.Mustf(t, err, "the daemon did not begin")
	if r.daemon == r.Process.Pid {
		t.Fatal("there is no parent process")
	}
	return r
}

func (r *running) line() string {
	r.out.Scan()
	return r.out.Text()
}

// ends waits for the parent process and compares its status.
func (r *running) ends(t *testing.T, want int) {
	t.Helper()
	_ = r.Wait()
	if got := r.ProcessState.ExitCode(); got != want {
		t.Errorf("exit status %d, want %d", got, want)
	}
}

// TestSignals: the parent process passes signals to the daemon and exits with the daemon's status.
func TestSignals(t *testing.T) {
	caught := make(chan os.Signal, 1) // children do not ignore a caught signal, so they do not ignore SIGHUP, even under nohup(1)
	signal.Notify(caught, unix.SIGHUP)
	defer signal.Stop(caught)
	for sig, want := range map[syscall.Signal]int{unix.SIGTERM: 7, unix.SIGHUP: 8} {
		r := begin(t, "wait", Options{User: strconv.Itoa(nobody), Keep: Needed})
		testenv.Must(t, r.Process.Signal(sig))
		if got := r.line(); got != sig.String() {
			t.Errorf("the daemon got %q, want %q", got, sig)
		}
		r.ends(t, want)
	}
}

// TestStarterKilled: when the parent process is killed, the daemon gets SIGTERM and ends, in
// whatever order the threads of the parent process die.
func TestStarterKilled(t *testing.T) {
	for i := range 20 {
		user := []string{"", strconv.Itoa(nobody)}[i%2]
		r := begin(t, "wait", Options{User: user, Keep: Needed})
		testenv.Must(t, r.Process.Kill())
		if got := r.line(); got != unix.SIGTERM.String() {
			t.Errorf("user %q: the daemon got %q, want SIGTERM", user, got)
		}
		if r.out.Scan() || r.out.Err() != nil {
			t.Errorf("user %q: the daemon goes on: %q, %v", user, r.out.Text(), r.out.Err())
		}
	}
}

// total returns the machine's number of 2 MiB pages.
func total(t *testing.T) uint64 {
	t.Helper()
	_, n, err := umem.FreePages(umem.Huge2M, -1)
	testenv.Must(t, err)
	return n
}

// TestPagesGivenBack: the parent process gives back the huge pages that it added, however the
// daemon ends. Other tests change the machine's count too, so the test tries a few times.
func TestPagesGivenBack(t *testing.T) {
	testenv.Root(t)
	for name, end := range map[string]func(*running) error{
		"asked to": func(r *running) error { return r.Process.Signal(unix.SIGTERM) },
		"killed":   func(r *running) error { return unix.Kill(r.daemon, unix.SIGKILL) },
	} {
		// Other tests change the number meanwhile, too, but not each time. Pages that are not given back are left each time.
		testenv.Wait(t, time.Minute, "a daemon that is "+name+" to give back the pages that it added", func() bool {
			before, during, after := borrow(t, end)
			t.Logf("%s: there were %d pages, then %d, and %d are left", name, before, during, after)
			return during >= before+4 && after == before
		})
	}
}

// borrow runs a daemon that needs four pages more than are free. It counts all pages before, during
// and after the run.
func borrow(t *testing.T, end func(*running) error) (before, during, after uint64) {
	t.Helper()
	free, before, err := umem.FreePages(umem.Huge2M, -1)
	testenv.Must(t, err)
	more := &umem.Config{Size: (free + 4) * umem.Huge2M.Bytes()}
	r := begin(t, "hold", Options{User: strconv.Itoa(nobody), Keep: Needed, Region: more})
	during = total(t)
	testenv.Must(t, end(r))
	_ = r.Wait()
	return before, during, total(t)
}

// TestSocketRemoved: the parent process removes the socket of a killed daemon. It does not remove a
// socket with a listener, or a file that is not a socket.
func TestSocketRemoved(t *testing.T) {
	dir := openDir(t)
	testenv.Must(t, os.Chown(dir, nobody, nobody))
	path := filepath.Join(dir, "control.sock")
	o := Options{User: strconv.Itoa(nobody), Keep: Needed, Dirs: []string{dir}, Sockets: []string{path}}
	r := begin(t, "listen", o)
	testenv.Must(t, unix.Kill(r.daemon, unix.SIGKILL))
	r.ends(t, 128+int(unix.SIGKILL))
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}

	l, err := net.Listen("unix", path)
	testenv.Must(t, err)
	finish(t, play(t, "fail", o), 42)
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("somebody else's socket is gone: %v", err)
	}
	l.Close()

	testenv.Must(t, os.WriteFile(path, nil, 0o600))
	finish(t, play(t, "fail", o), 42)
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("a file is gone: %v", err)
	}
}

func TestLookUp(t *testing.T) {
	if u, err := lookUp(""); u != nil || err != nil {
		t.Errorf("no user: %+v, %v", u, err)
	}
	if u, err := lookUp("root"); err != nil || u.uid != 0 {
		t.Errorf("root: %+v, %v", u, err)
	}
	if u, err := lookUp("0"); err != nil || u.uid != 0 {
		t.Errorf("0: %+v, %v", u, err)
	}
	if u, err := lookUp("3000000000"); err != nil || u.uid != 3000000000 || u.gid != 3000000000 {
		t.Errorf("a number of nobody: %+v, %v", u, err)
	}
	for _, name := range []string{"-1", "4294967295", "4294967296", "18446744073709551616", "no such user"} {
		if u, err := lookUp(name); err == nil {
			t.Errorf("%s is taken for %+v", name, u)
		}
	}
}
