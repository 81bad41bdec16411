package vm

import (
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/selftests/lab/klog"
)

var (
	// ErrStart means that the guest never accepted commands.
	ErrStart = errors.New("the guest did not start")
	// ErrSilent is the ErrStart of a guest that hung while it booted. The emulator sometimes
	// loses a timer's interrupt, mostly on a busy machine. Another attempt shows whether that
	// was the only cause.
	ErrSilent = fmt.Errorf("%w: it came to a standstill", ErrStart)
	// ErrKernel means that the guest's kernel died.
	ErrKernel = errors.New("the guest's kernel died")
	// ErrHung means that the guest no longer answers.
	ErrHung = errors.New("the guest hangs")
	// ErrLost means that the emulator ended while a command ran, and the kernel did not say why.
	ErrLost = errors.New("the guest ended")
)

// failure returns one of the errors above, with the event and the end of the console.
func (g *Guest) failure(kind error, format string, args ...any) error {
	return fmt.Errorf("%w: %s\nThe end of its console:\n%s", kind, fmt.Sprintf(format, args...), g.console.tail())
}

// lost returns why the channel ended. The console shows the kernel's death, maybe a moment later.
func (g *Guest) lost(otherwise error, why error) error {
	g.process.within(2 * time.Second)
	if text := g.console.String(); klog.InConsole(text) {
		return fmt.Errorf("%w: %v\nIts console, from the first complaint on:\n%s", ErrKernel, why, firstLines(klog.FromComplaint(text)))
	}
	return g.failure(otherwise, "%v", why)
}
