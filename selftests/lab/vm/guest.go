package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/unifiedd/unifiedd/selftests/lab/klog"
	"github.com/unifiedd/unifiedd/selftests/lab/wire"
)

// Guest is a booted guest.
type Guest struct {
	// Version is the guest's output of uname -r.
	Version string
	// Complaints are the kernel's complaints while it booted.
	Complaints []string

	process *process
	channel *os.File
	in      *json.Decoder
	console console
	stop    func() bool // removes the context's hook
}

const (
	// bootLimit is how long a guest may take to boot on a busy machine.
	bootLimit = 150 * time.Second
	// killTimeout is how long a guest may be silent after a command's limit.
	killTimeout = 30 * time.Second
)

// Boot starts a guest and waits until it takes commands. The caller closes it. When ctx ends, the
// emulator is killed. Boot takes ownership of c.Link.
func Boot(ctx context.Context, c Config) (*Guest, error) {
	f, err := c.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStart, err)
	}
	g := &Guest{channel: f.ours, in: json.NewDecoder(f.ours)}
	g.process, err = startProcess(c.Emulator.Program, c.arguments(f.fds), c.Emulator.Env, f.all, &g.console)
	err = errors.Join(err, f.close())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStart, errors.Join(err, f.ours.Close()))
	}
	g.stop = context.AfterFunc(ctx, func() { _ = g.process.cmd.Process.Kill() })
	if err := g.greet(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// greet waits for the guest's first message. It stops waiting if the guest's kernel stalls.
func (g *Guest) greet() error {
	begin := time.Now()
	g.console.whenStalled(func() { _ = g.channel.SetReadDeadline(time.Now()) })
	m, err := g.receive(begin.Add(bootLimit))
	g.console.whenStalled(nil)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return g.failure(ErrSilent, "after %v", time.Since(begin).Round(time.Second))
	case err != nil:
		return g.lost(ErrStart, err)
	case m.Ready == nil:
		return g.failure(ErrStart, "%s", m.Problem)
	}
	g.Version, g.Complaints = m.Ready.Version, klog.Complaints(m.Ready.Log)
	return nil
}

// receive waits for a message until the deadline.
func (g *Guest) receive(deadline time.Time) (wire.Message, error) {
	var m wire.Message
	if err := g.channel.SetReadDeadline(deadline); err != nil {
		return m, fmt.Errorf("limit the wait for the guest: %w", err)
	}
	err := g.in.Decode(&m)
	return m, err
}

// Result is the result of a command.
type Result struct {
	// Code is the exit status, or 128 and the number of a signal.
	Code int
	// TimedOut means that the command took longer than its limit and was killed.
	TimedOut bool
	// Complaints are the kernel's complaints while the command ran.
	Complaints []string
}

// Run runs a command to its end, and writes its output to out at once. After an error the guest
// cannot be used again.
func (g *Guest) Run(c wire.Command, out io.Writer) (Result, error) {
	if err := json.NewEncoder(g.channel).Encode(wire.Message{Run: &c}); err != nil {
		return Result{}, g.lost(ErrLost, err)
	}
	deadline := time.Now().Add(c.Limit + killTimeout)
	for {
		m, err := g.receive(deadline)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return Result{}, g.failure(ErrHung, "a command with a limit of %v has not ended after %v", c.Limit, c.Limit+killTimeout)
		case err != nil:
			return Result{}, g.lost(ErrLost, fmt.Errorf("the channel to it ended: %w", err))
		case m.Exit != nil:
			return Result{m.Exit.Code, m.Exit.TimedOut, klog.Complaints(m.Exit.Log)}, nil
		}
		if _, err := out.Write(m.Output); err != nil {
			return Result{}, fmt.Errorf("pass the command's output on: %w", err)
		}
	}
}

// Close ends the guest as a power cut would: the guest loses all its data. It may be called twice.
func (g *Guest) Close() error {
	g.stop()
	err := g.process.kill()
	if e := g.channel.Close(); !errors.Is(e, os.ErrClosed) {
		err = errors.Join(err, e)
	}
	return err
}
