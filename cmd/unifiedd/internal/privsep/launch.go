package privsep

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf/dispatcher"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// passed are the signals that the parent process passes on to the daemon. If SIGHUP is ignored
// here, as under nohup(1), the daemon ignores it too. A shell that runs a script ignores SIGINT
// and SIGQUIT in background programs. They are still passed on, and end a capture as they end
// tcpdump.
func passed() []os.Signal {
	signals := []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2}
	if !signal.Ignored(unix.SIGHUP) {
		signals = append(signals, unix.SIGHUP)
	}
	return signals
}

// launch is the parent process from start to end.
func (o Options) launch(u *identity) (out Outcome, err error) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passed()...)
	defer signal.Stop(signals)
	var undo []func() error
	defer func() {
		for i := len(undo) - 1; i >= 0; i-- {
			err = errors.Join(err, undo[i]())
		}
	}()
	memory, err := o.prepare(u, &undo)
	if err != nil {
		return Outcome{}, err
	}
	file, err := o.makeFile(u)
	if err != nil {
		return Outcome{}, err
	}
	d, err := o.run(u, memory, file)
	if err != nil {
		return Outcome{}, fmt.Errorf("start the daemon: %w", err)
	}
	if err := memory.Release(); err != nil { // the daemon has it now
		return Outcome{}, err
	}
	return d.attend(signals)
}

// prepare makes what takes privilege. It adds to undo the functions that remove it.
func (o Options) prepare(u *identity, undo *[]func() error) (*umem.Memory, error) {
	if err := o.makeDirs(u); err != nil {
		return nil, err
	}
	memory, err := o.allocate()
	if err != nil {
		return nil, err
	}
	*undo = append(*undo, memory.GiveBack)
	if o.Steering != "" {
		*undo = append(*undo, func() error { return xdp.SweepSteering(o.Steering) })
	}
	if o.Joins {
		*undo = append(*undo, dispatcher.Sweep)
	}
	for _, path := range o.Sockets {
		s, err := openSocket(path)
		if err != nil {
			return nil, err
		}
		*undo = append(*undo, s.remove)
	}
	return memory, nil
}

// attend passes signals on until the daemon has ended.
func (d *daemon) attend(signals <-chan os.Signal) (Outcome, error) {
	for {
		select {
		case s := <-signals:
			// An error means that the daemon has ended, which the other case reports.
			_ = d.process.Signal(s)
		case state := <-d.ended:
			return Outcome{Status: status(state)}, nil
		}
	}
}

// status returns the exit status that a shell would report for a process.
func status(state *os.ProcessState) int {
	if w, ok := state.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return state.ExitCode()
}
