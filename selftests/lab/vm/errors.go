package vm

import (
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/selftests/lab/klog"
)

var (
	// ErrStart says that the guest never got as far as taking commands.
	ErrStart = errors.New("the guest did not start")
	// ErrSilent is the ErrStart of a guest that came to a standstill while it booted.
	// The emulator loses a timer's interrupt once in a while, mostly where the machine
	// is busy; another attempt tells whether that was all.
	ErrSilent = fmt.Errorf("%w: it came to a standstill", ErrStart)
	// ErrKernel says that the guest's kernel died.
	ErrKernel = errors.New("the guest's kernel died")
	// ErrHung says that the guest no longer answers.
	ErrHung = errors.New("the guest hangs")
)

// failure puts what happened and the end of the console behind one of the errors
// above.
func (g *Guest) failure(kind error, format string, args ...any) error {
	return fmt.Errorf("%w: %s\nThe end of its console:\n%s", kind, fmt.Sprintf(format, args...), g.console.tail())
}

// lost returns why the channel ended: the kernel's death shows on the console, which
// may be a moment behind.
func (g *Guest) lost(otherwise error, why error) error {
	g.process.within(2 * time.Second)
	if klog.InConsole(g.console.String()) {
		return g.failure(ErrKernel, "%v", why)
	}
	return g.failure(otherwise, "%v", why)
}
