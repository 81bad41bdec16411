package bpf

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Errors to be matched with errors.Is.
var (
	// ErrOccupied: another XDP program is on the interface. The error is a *[ForeignError] if the
	// kernel names the program.
	ErrOccupied = errors.New("another XDP program is attached")
	// ErrNoDriverMode: the driver of the interface has no native XDP.
	ErrNoDriverMode = errors.New("driver has no native XDP")
	// ErrDriverRefused: the driver has native XDP, but refuses this program on
	// the interface as it is configured; mostly because of its MTU.
	ErrDriverRefused = errors.New("driver refuses the XDP program")
	// ErrOtherMode: the dispatcher on the interface runs in another mode than the
	// one asked for.
	ErrOtherMode = errors.New("the dispatcher runs in another mode")
	// ErrNoExtensions: the kernel loads no programs that a dispatcher calls.
	ErrNoExtensions = errors.New("the kernel does not let this process load a program for libxdp's dispatcher")
	// ErrRefused: the kernel's verifier refused the program. The error is a
	// *[RefusedError].
	ErrRefused = errors.New("verifier refuses the XDP program")
	// ErrClosed: the Program was closed.
	ErrClosed = errors.New("XDP program is closed")
	// ErrAttached: the Program is on an interface already.
	ErrAttached = errors.New("XDP program is attached already")
)

// ForeignError names the program that keeps ours from an interface. It matches
// [ErrOccupied].
type ForeignError struct {
	Interface string // name of the interface
	ID        uint32 // of the other program
	Name      string // of the other program, or "" when it may not be read
	Mode      Mode   // how it is attached; Any if the kernel reports several modes
	LinkID    uint32 // of the bpf_link that holds it, 0 when attached by netlink
	// Dispatcher: the other program is a dispatcher of libxdp, which ours could join.
	Dispatcher bool
}

// Error names the other program and how to remove it.
func (e *ForeignError) Error() string {
	name := ""
	if e.Name != "" {
		name = fmt.Sprintf(" %q", e.Name)
	}
	return fmt.Sprintf("%v to %s: program%s, id %d, %s mode; it is left alone (%s)",
		ErrOccupied, e.Interface, name, e.ID, e.Mode, e.remedy())
}

func (e *ForeignError) remedy() string {
	if e.Dispatcher {
		return fmt.Sprintf("to run in it beside the programs that are there: from.beside: libxdp; see which: xdp-loader status %s", e.Interface)
	}
	if e.LinkID != 0 {
		return fmt.Sprintf("stop the process that holds it, or: bpftool link detach id %d", e.LinkID)
	}
	if e.Name == "" {
		return e.off() + "; if it is a dispatcher of libxdp, which only CAP_SYS_ADMIN may see, from.beside: libxdp joins it"
	}
	return e.off()
}

// off says how to remove the program.
func (e *ForeignError) off() string {
	off := map[Mode]string{Driver: "xdpdrv", Generic: "xdpgeneric"}[e.Mode]
	if off == "" {
		off = "xdp"
	}
	return fmt.Sprintf("if it is not needed: ip link set dev %s %s off", e.Interface, off)
}

// Is reports whether target is [ErrOccupied].
func (e *ForeignError) Is(target error) bool { return target == ErrOccupied }

// RefusedError says what the verifier refused. It matches [ErrRefused].
type RefusedError struct {
	// Filter is the expression that was compiled in, "" when there was none.
	Filter string
	// Own is the user's program, nil when there was none.
	Own *Object
	// Lines are the end of the verifier's log, without its statistics.
	Lines []string
	cause error
}

// tooManyBranches replaces the verifier's text, which is lost in this case.
const tooManyBranches = "more than 8192 branches wait to be walked"

// How much of the verifier's log an error shows: in general, and for a user's own program.
const (
	logLines    = 4
	ownLogLines = 40
)

// filterText is how much of a filter an error shows.
const filterText = 120

// Error names the filter, the verifier's words, and the remedy.
func (e *RefusedError) Error() string {
	what, remedy := "without a filter", "this kernel may be too old: Linux 5.18 or later is needed"
	if e.Own != nil {
		return fmt.Sprintf("%v with %v; the end of what the verifier says:\n\t%s", ErrRefused, e.Own, strings.Join(e.Lines, "\n\t"))
	}
	if e.Filter != "" {
		what, remedy = fmt.Sprintf("with the filter %q", shorten(e.Filter)), "simplify the filter: fewer alternatives, networks instead of hosts"
	}
	return fmt.Sprintf("%v %s: %s (%s)", ErrRefused, what, strings.Join(e.Lines, "; "), remedy)
}

func shorten(text string) string {
	if len(text) <= filterText {
		return text
	}
	return text[:filterText] + "..."
}

// Is reports whether target is [ErrRefused].
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// Unwrap returns the error of the load.
func (e *RefusedError) Unwrap() error { return e.cause }

// loadError explains why the kernel did not take the program.
func loadError(err error, s *Selection) error {
	var verifier *ebpf.VerifierError
	if errors.As(err, &verifier) && len(verifier.Log) > 0 {
		return &RefusedError{Filter: s.String(), Own: s.Own, Lines: lastWords(verifier.Log, s.Own), cause: err}
	}
	if errors.Is(err, unix.EFAULT) {
		// check_cond_jmp_op of the verifier returns this when its stack of pending branches is
		// full. The kernel returns no log with it.
		return &RefusedError{Filter: s.String(), Own: s.Own, Lines: []string{tooManyBranches}, cause: err}
	}
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("load XDP program: %w (run as root, or with CAP_BPF and CAP_NET_ADMIN)", err)
	}
	return fmt.Errorf("load XDP program: %w", err)
}

// lastWords returns the end of the verifier's log, without its statistics.
func lastWords(log []string, own *Object) []string {
	lines := slices.DeleteFunc(slices.Clone(log), func(line string) bool {
		return slices.ContainsFunc([]string{"verification time ", "stack depth ", "processed ", "insns processed "},
			func(prefix string) bool { return strings.HasPrefix(line, prefix) })
	})
	most := logLines
	if own != nil {
		most = ownLogLines
	}
	return lines[max(0, len(lines)-most):]
}
