package privsep

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/internal/caps"
	"github.com/unifiedd/unifiedd/internal/osthread"
	"github.com/unifiedd/unifiedd/umem"
)

// daemon is the started process.
type daemon struct {
	process *os.Process
	ended   chan *os.ProcessState
}

// run starts this program again from a thread with the daemon's rights. That thread lives as long
// as the daemon. When it ends, alone or with the process, the kernel sends the daemon SIGTERM.
//
// run passes the region's memory to the daemon, and the file, if there is one. It closes the file.
func (o Options) run(u *identity, memory *umem.Memory, file *os.File) (*daemon, error) {
	d := &daemon{ended: make(chan *os.ProcessState, 1)}
	started := make(chan error, 1)
	go osthread.Run(func() { // nothing else may run with these rights
		cmd, err := o.start(u, memory, file)
		if err != nil {
			started <- err
			return
		}
		d.process = cmd.Process
		started <- nil
		_ = cmd.Wait() // ProcessState says more than the error
		d.ended <- cmd.ProcessState
	})
	return d, <-started
}

// start reduces the rights of the calling thread and starts the program from it.
func (o Options) start(u *identity, memory *umem.Memory, file *os.File) (*exec.Cmd, error) {
	defer file.Close()
	self, err := caps.Thread()
	if err != nil {
		return nil, err
	}
	if u.is(self) {
		u = nil // a change of user takes rights, and is not necessary
	}
	if lack := changes(u).Minus(self.Effective); lack != 0 {
		return nil, fmt.Errorf("become user %d: that takes %v (start as root, or as that user)", u.uid, lack)
	}
	if u != nil && !u.mapped() {
		return nil, fmt.Errorf("become user %d: this user namespace has no such user or group, or no groups can be set in it (keep the user: -Z %d, or the setting user)", u.uid, self.UID.Effective)
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
	if o.Config != nil {
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", configMarker, firstFile+len(cmd.ExtraFiles)))
		cmd.ExtraFiles = append(cmd.ExtraFiles, o.Config)
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return cmd, nil
}

// reopenedPipe opens a pipe again, because the daemon's user may not be able to. No other process
// shares the mode of the new file description, so the daemon may change it. It returns nil if f is
// not a pipe, or cannot be opened.
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

// changes returns the capabilities that a thread needs to start a process of another user and to send it
// signals. If the thread that is its parent lacks CAP_KILL, the kernel does not even deliver the signal at
// the parent's death (group_send_sig_info in kernel/signal.c checks permission for that too).
func changes(u *identity) caps.Set {
	if u == nil {
		return 0
	}
	return caps.Setuid | caps.Setgid | caps.Kill
}

// command runs this program again. It uses the kernel's own link to the file: the user may lack
// access to the path, and an update may replace it. In its own session the daemon gets no signals
// from the terminal. The parent process passes them on.
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

// environment returns this process's environment with the marker. It removes the variable with
// which systemd names the parent process (sd_watchdog_enabled(3)).
func environment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "WATCHDOG_PID=") && !strings.HasPrefix(v, memoryMarker+"=") && !strings.HasPrefix(v, opened+"=") && !strings.HasPrefix(v, configMarker+"=") {
			env = append(env, v)
		}
	}
	return append(env, marker+"=1")
}
