package vm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is the emulator.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended and err is set
	err   error
}

// startProcess starts the emulator, with all its output going to out. The kernel kills the emulator
// when this process ends, in every case. It watches the thread that started the emulator, so
// startProcess keeps one thread for it.
func startProcess(program string, args, env []string, extra []*os.File, out *console) (*process, error) {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.ExtraFiles = extra
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start the emulator: %w", err)
	}
	return p, nil
}

// within reports whether the emulator ends within d.
func (p *process) within(d time.Duration) bool {
	select {
	case <-p.ended:
		return true
	case <-time.After(d):
		return false
	}
}

// kill kills the emulator and waits until it has ended.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill the emulator: %w", err)
	}
	<-p.ended
	return nil
}
