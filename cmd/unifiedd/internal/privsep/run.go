package privsep

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/caps"
	"github.com/unifiedd/unifiedd/umem"
)

// daemon is the started process.
type daemon struct {
	process *os.Process
	ended   chan *os.ProcessState
}

// run starts this program again from a thread with the daemon's rights. The
// thread lives as long as the daemon: its end, with the whole process or alone, is
// what makes the kernel send SIGTERM.
//
// It gives the daemon the region's memory, and the file, if there is one, which it closes.
func (o Options) run(u *identity, memory *umem.Memory, file *os.File) (*daemon, error) {
	d := &daemon{ended: make(chan *os.ProcessState, 1)}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: nothing else may run with these rights
		cmd, err := o.start(u, memory, file)
		if err != nil {
			started <- err
			return
		}
		d.process = cmd.Process
		started <- nil
		_ = cmd.Wait() // the state tells more
		d.ended <- cmd.ProcessState
	}()
	return d, <-started
}

// start reduces the calling thread and starts the program from it.
func (o Options) start(u *identity, memory *umem.Memory, file *os.File) (*exec.Cmd, error) {
	defer file.Close()
	self, err := caps.Thread()
	if err != nil {
		return nil, err
	}
	if u.is(self) {
		u = nil // nothing to change, which takes rights
	}
	if lack := changes(u).Minus(self.Effective); lack != 0 {
		return nil, fmt.Errorf("become user %d: that takes %v (start as root, or as that user)", u.uid, lack)
	}
	keep := o.Keep & self.Permitted
	if err := reduce(self, keep, u); err != nil {
		return nil, err
	}
	cmd := o.command(keep, u)
	if own := reopenedPipe(os.Stdout); own != nil {
		defer own.Close()
		cmd.Stdout, cmd.Env = own, append(cmd.Env, ownStdout+"=1")
	}
	if files := memory.Files(); len(files) > 0 {
		cmd.ExtraFiles = files
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", memoryMarker, len(files)))
	}
	if file != nil {
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", opened, firstFile+len(cmd.ExtraFiles)))
		cmd.ExtraFiles = append(cmd.ExtraFiles, file)
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return cmd, nil
}

// reopenedPipe opens a pipe once more, which the daemon's user may not be able to. The
// daemon may then change its mode, which nobody else shares. Nil: it is no pipe, or it
// cannot be opened.
func reopenedPipe(f *os.File) *os.File {
	if info, err := f.Stat(); err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
		return nil
	}
	own, err := os.OpenFile(fmt.Sprintf("/proc/thread-self/fd/%d", f.Fd()), os.O_WRONLY, 0)
	if err != nil {
		return nil
	}
	return own
}

// changes are the capabilities it takes to start a process of another user, and to
// send it signals: without CAP_KILL in the thread that is its parent, the kernel
// does not deliver the one at the parent's death either (group_send_sig_info in
// kernel/signal.c asks for permission even then).
func changes(u *identity) caps.Set {
	if u == nil {
		return 0
	}
	return caps.Setuid | caps.Setgid | caps.Kill
}

// command is this program once more. It is found by the kernel's own link, which
// the user need not be able to reach and no update replaces. A session of its own
// keeps the terminal's signals away, which come from the parent process.
func (o Options) command(keep caps.Set, u *identity) *exec.Cmd {
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: os.Args, Env: environment(),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGTERM},
	}
	for _, n := range keep.Numbers() {
		cmd.SysProcAttr.AmbientCaps = append(cmd.SysProcAttr.AmbientCaps, uintptr(n))
	}
	if u != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: u.uid, Gid: u.gid, Groups: u.groups}
	}
	return cmd
}

// environment is this process's with the marker, and without the number by which
// systemd means the parent process (sd_watchdog_enabled(3)).
func environment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "WATCHDOG_PID=") && !strings.HasPrefix(v, memoryMarker+"=") && !strings.HasPrefix(v, opened+"=") {
			env = append(env, v)
		}
	}
	return append(env, marker+"=1")
}
