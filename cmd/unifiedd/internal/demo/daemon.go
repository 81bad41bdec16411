package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/unifiedd/unifiedd/cmd/unifiedd/internal/control"
	"github.com/unifiedd/unifiedd/flows/status"
)

// daemon is a process that runs `unifiedd run`.
type daemon struct {
	socket string // its control socket
	cmd    *exec.Cmd
	said   output
	ended  chan struct{}
	result error // of the process, once ended is closed
}

// output collects the output of a process.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// startDaemon runs a daemon in the namespace with that path, and waits until all its flows are up.
func startDaemon(ctx context.Context, program, namespace, file, socket string) (*daemon, error) {
	d := &daemon{cmd: exec.Command(program, "run", "-c", file), socket: socket, ended: make(chan struct{})}
	d.cmd.Stdout, d.cmd.Stderr = &d.said, &d.said
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() { // on a separate thread, which the kernel watches: see runProgram
		d.result = inNamespace(namespace, func() error {
			err := d.cmd.Start()
			started <- err
			if err != nil {
				return err
			}
			return d.cmd.Wait()
		})
		select {
		case started <- d.result: // it did not start
		default:
		}
		close(d.ended)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	if err := d.ready(ctx, func(f *status.Flow) bool { return f.State.Up() }); err != nil { // flows that send to peers wait for them, and the peers do not run yet
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

// startLimit is much longer than flows take to start and find their peers.
const startLimit = time.Minute

// ready waits until every flow is in an accepted state. A flow that failed stays failed.
func (d *daemon) ready(ctx context.Context, enough func(*status.Flow) bool) error {
	err, failed := errors.New("it does not answer"), false
	await(ctx, startLimit, func() bool {
		failed, err = d.are(ctx, enough)
		return err == nil || failed || d.over()
	})
	if err != nil {
		return fmt.Errorf("the daemon is not ready: %w\n%s", err, &d.said)
	}
	return nil
}

// are returns an error that names a flow in another state. It also reports whether a flow failed.
func (d *daemon) are(ctx context.Context, enough func(*status.Flow) bool) (failed bool, err error) {
	s, err := d.status(ctx)
	for i := range s.Flows {
		if f := &s.Flows[i]; !enough(f) && !failed {
			failed, err = f.State == status.Failed, fmt.Errorf("flow %s is %s: %s", f.Name, f.State, f.Error)
		}
	}
	return failed, err
}

func (d *daemon) over() bool {
	select {
	case <-d.ended:
		return true
	default:
		return false
	}
}

// status returns the daemon's status.
func (d *daemon) status(ctx context.Context) (s status.Daemon, err error) {
	raw, err := control.Status(ctx, d.socket)
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	return s, err
}

// trouble returns an error with the daemon's output.
func (d *daemon) trouble() error { return fmt.Errorf("the daemon says:\n%s", &d.said) }

// kill ends the daemon and its child as a crash does.
func (d *daemon) kill() {
	_ = syscall.Kill(-d.cmd.Process.Pid, syscall.SIGKILL) // it may have ended already
	<-d.ended
}

// stop ends the daemon. The daemon writes its pending data first.
func (d *daemon) stop() error {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.ended:
	case <-time.After(programLimit):
		d.kill()
		return fmt.Errorf("the daemon did not end within %v\n%s", programLimit, &d.said)
	}
	if d.result != nil {
		return fmt.Errorf("the daemon failed: %w\n%s", d.result, &d.said)
	}
	return nil
}
