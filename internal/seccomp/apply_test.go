package seccomp

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/caps"
)

// role is the environment variable that says what a process of a test does under the filter. These tests do without
// internal/testenv, which turns on the mode of tests in each process that has it.
const role = "SECCOMP_TEST_ROLE"

func TestMain(m *testing.M) {
	do := os.Getenv(role)
	if do == "" {
		os.Exit(m.Run())
	}
	for range 4 { // threads that are there already
		go func() { runtime.LockOSThread(); select {} }()
	}
	time.Sleep(20 * time.Millisecond)
	if err := Apply(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(roles[do]())
}

var roles = map[string]func() int{
	"allowed": allowed,
	"refused": refused,
	"mount":   func() int { fmt.Println(unix.Mount("", "/", "", 0, "")); return 0 },
	"threads": threads,
}

// allowed starts a program, opens a socket of each family, and applies the filter again.
func allowed() int {
	out, err := exec.Command("sh", "-c", "echo $(id -u) | cat").CombinedOutput()
	fmt.Printf("%s", out)
	for _, f := range Families {
		fd, e := unix.Socket(int(f.Number), unix.SOCK_RAW, 0)
		if errors.Is(e, unix.EPERM) && os.Getuid() == 0 {
			err = errors.Join(err, fmt.Errorf("socket of %s: %w", f.Name, e))
		}
		unix.Close(fd)
	}
	if err = errors.Join(err, Apply()); err != nil {
		fmt.Println(err)
		return 1
	}
	threads, _ := caps.Threads()
	fmt.Println(len(threads), "threads")
	return 0
}

// refused makes calls outside the list. Each must fail with EPERM.
func refused() (status int) {
	for name, call := range map[string]func() error{
		"mount":       func() error { return unix.Mount("", "/", "", unix.MS_REMOUNT, "") },
		"unshare":     func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
		"setns":       func() error { return unix.Setns(0, 0) },
		"ptrace":      func() error { return unix.PtraceAttach(1) },
		"personality": func() error { _, _, errno := unix.Syscall(unix.SYS_PERSONALITY, 0xffffffff, 0, 0); return toErr(errno) },
		"AF_ALG":      func() error { _, err := unix.Socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0); return err },
		"clone with a namespace": func() error {
			cmd := exec.Command("true")
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
			return cmd.Run()
		},
	} {
		if err := call(); !errors.Is(err, unix.EPERM) {
			fmt.Printf("%s: %v, want EPERM\n", name, err)
			status = 1
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_CLONE3, 0, 0, 0); errno != unix.ENOSYS {
		fmt.Printf("clone3: %v, want ENOSYS\n", errno)
		status = 1
	}
	return status
}

// threads calls clone3, as the C library does for each thread, and then a call outside the list. The kernel's log has the
// name of the thread.
func threads() int {
	runtime.LockOSThread()
	if err := os.WriteFile("/proc/thread-self/comm", []byte(os.Getenv(threadName)), 0); err != nil {
		fmt.Println(err)
		return 1
	}
	if _, _, errno := unix.Syscall(unix.SYS_CLONE3, 0, 0, 0); errno != unix.ENOSYS {
		fmt.Printf("clone3: %v, want ENOSYS\n", errno)
		return 1
	}
	fmt.Println(unix.Mount("", "/", "", 0, ""))
	return 0
}

// threadName is the environment variable with the name of the thread of the role threads.
const threadName = "SECCOMP_TEST_THREAD"

// TestLog: the kernel logs a call outside the list, but not that there is no clone3.
func TestLog(t *testing.T) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("the kernel's log: %v", err)
	}
	defer unix.Close(fd)
	if _, err := unix.Seek(fd, 0, io.SeekEnd); err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("sc%d", time.Now().UnixNano()%1e12) // at most 15 bytes
	t.Setenv(threadName, name)
	mount, clone3 := fmt.Sprintf("syscall=%d ", unix.SYS_MOUNT), fmt.Sprintf("syscall=%d ", unix.SYS_CLONE3)
	end, next, b := time.Now().Add(30*time.Second), time.Time{}, make([]byte, 8192)
	for {
		if now := time.Now(); now.After(next) { // again: the kernel leaves lines out when there are many
			if out, err := play(t, "threads", ""); err != nil || !strings.Contains(out, unix.EPERM.Error()) {
				t.Fatalf("%v: %s", err, out)
			}
			next = now.Add(time.Second)
		}
		n, err := unix.Read(fd, b) // one record
		switch line := string(b[:max(n, 0)]); {
		case errors.Is(err, unix.EAGAIN) && time.Now().After(end):
			t.Skip("the kernel's log has no audit lines: another program takes them, or the kernel has no audit")
		case errors.Is(err, unix.EAGAIN):
			time.Sleep(10 * time.Millisecond)
		case err != nil && !errors.Is(err, unix.EPIPE): // EPIPE: records were written over
			t.Fatal(err)
		case !strings.Contains(line, "type=1326") || !strings.Contains(line, name):
		case strings.Contains(line, clone3):
			t.Errorf("the kernel logs clone3: %s", line)
		case strings.Contains(line, mount):
			return
		}
	}
}

func toErr(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// play runs this test program in a role, with the mode in its environment.
func play(t *testing.T, do, mode string) (output string, err error) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), role+"="+do, environment+"="+mode)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestAllowed(t *testing.T) {
	for _, mode := range []string{"", trap} {
		if out, err := play(t, "allowed", mode); err != nil || !strings.Contains(out, "threads") {
			t.Errorf("mode %q: %v: %s", mode, err, out)
		}
	}
}

func TestRefused(t *testing.T) {
	if out, err := play(t, "refused", ""); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestTrap: in the mode of tests, a call outside the list ends the process with a traceback of the
// call.
func TestTrap(t *testing.T) {
	out, err := play(t, "mount", trap)
	if err == nil || !strings.Contains(out, "SIGSYS: bad system call") || !strings.Contains(out, "unix.Mount") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestList: each name exists on amd64 or arm64, and is listed once.
func TestList(t *testing.T) {
	all := calls()
	if n := len(slices.Compact(slices.Clone(all))); n != len(all) {
		t.Errorf("%d names, %d of them different", len(all), n)
	}
	for _, name := range all {
		_, amd64 := arch.X86_64.SyscallNames[name]
		_, arm64 := arch.AARCH64.SyscallNames[name]
		if !amd64 && !arm64 {
			t.Errorf("%s is no system call of amd64 or arm64", name)
		}
	}
}

// TestPolicy: the filter program, run over every system call, allows exactly the list.
func TestPolicy(t *testing.T) {
	a, err := arch.GetInfo("")
	if err != nil {
		t.Fatal(err)
	}
	vm := machine(t, a)
	for name, number := range a.SyscallNames {
		want := uint32(seccomp.ActionErrno) | uint32(unix.EPERM)
		switch {
		case name == "clone3":
			want = uint32(seccomp.ActionErrno) | uint32(unix.ENOSYS)
		case name == "socket": // the argument is AF_UNSPEC
		case slices.Contains(calls(), name):
			want = uint32(seccomp.ActionAllow)
		}
		if got := vm(uint32(a.ID), uint32(number), 0); got != want {
			t.Errorf("%s gives %#x, want %#x", name, got, want)
		}
	}
	clone, socket := uint32(a.SyscallNames["clone"]), uint32(a.SyscallNames["socket"])
	for what, got := range map[string]uint32{
		"a call of another architecture": vm(uint32(arch.I386.ID), 1, 0),
		"clone with a namespace":         vm(uint32(a.ID), clone, unix.CLONE_NEWUSER|uint64(unix.SIGCHLD)),
		"a socket of AF_ALG":             vm(uint32(a.ID), socket, unix.AF_ALG),
		"a family beyond 32 bits":        vm(uint32(a.ID), socket, unix.AF_XDP|1<<32),
	} {
		if got == uint32(seccomp.ActionAllow) {
			t.Errorf("%s is allowed", what)
		}
	}
	for _, f := range Families {
		if got := vm(uint32(a.ID), socket, f.Number); got != uint32(seccomp.ActionAllow) {
			t.Errorf("a socket of %s gives %#x", f.Name, got)
		}
	}
}

// machine returns a function that runs an architecture's programs on struct seccomp_data, and returns the strictest of
// their answers: the least number.
func machine(t *testing.T, a *arch.Info) func(id, number uint32, arg uint64) uint32 {
	t.Helper()
	var vms []*bpf.VM
	for _, f := range filters(a, refusal("")) {
		program, err := f.Policy.Assemble()
		if err != nil {
			t.Fatal(err)
		}
		vm, err := bpf.NewVM(program)
		if err != nil {
			t.Fatal(err)
		}
		vms = append(vms, vm)
	}
	return func(id, number uint32, arg uint64) uint32 {
		data := make([]byte, 64)
		// The machine reads big-endian words, while the kernel uses the processor's byte order.
		put := func(at int, v uint32) {
			data[at], data[at+1], data[at+2], data[at+3] = byte(v>>24), byte(v>>16), byte(v>>8), byte(v)
		}
		put(0, number)
		put(4, id)
		put(16, uint32(arg))
		put(20, uint32(arg>>32))
		strictest := uint32(seccomp.ActionAllow)
		for _, vm := range vms {
			action, err := vm.Run(data)
			if err != nil {
				t.Fatal(err)
			}
			strictest = min(strictest, uint32(action))
		}
		return strictest
	}
}
