package bpf

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Mode says where in the receive path the program runs.
type Mode uint8

const (
	// Any is Driver where the driver takes the program, else Generic.
	Any Mode = iota
	// Driver runs in the driver, before the kernel allocates anything.
	Driver
	// Generic runs in the network stack, on every interface, and is slow.
	Generic
)

// String returns the name of the mode.
func (m Mode) String() string {
	return [...]string{Any: "any", Driver: "driver", Generic: "generic"}[min(m, Generic)]
}

var modeFlags = map[Mode]link.XDPAttachFlags{Driver: link.XDPDriverMode, Generic: link.XDPGenericMode}

// Attach puts the program on the interface with this index in the network
// namespace of the calling thread, where it stays until Close or the end of the
// process. Mode tells what was granted. Errors match [ErrOccupied],
// [ErrNoDriverMode], [ErrDriverRefused], [ErrOtherMode], [ErrAttached] or [ErrClosed],
// and with Config.Dispatcher those of package dispatcher.
func (p *Program) Attach(ifindex int, mode Mode) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.program == nil:
		return fmt.Errorf("attach to interface %d: %w", ifindex, ErrClosed)
	case p.link != nil:
		return fmt.Errorf("attach to interface %d: %w", ifindex, ErrAttached)
	case p.config.Dispatcher != nil:
		return p.join(ifindex, mode)
	case mode != Any:
		return p.attach(ifindex, mode)
	}
	err := p.attach(ifindex, Driver)
	if errors.Is(err, ErrNoDriverMode) || errors.Is(err, ErrDriverRefused) {
		return p.attach(ifindex, Generic)
	}
	return err
}

// Mode is how the program runs on its interface: Driver or Generic; Any while
// it is on none.
func (p *Program) Mode() Mode {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link == nil {
		return Any
	}
	return p.mode
}

func (p *Program) attach(ifindex int, mode Mode) error {
	l, err := link.AttachXDP(link.XDPOptions{Program: p.program, Interface: ifindex, Flags: modeFlags[mode]})
	if err != nil {
		return attachError(ifindex, mode, err)
	}
	p.link, p.mode = l, mode
	return nil
}

// attachError explains why the kernel did not attach the program. Which error
// means what is in dev_xdp_attach of net/core/dev.c and in the drivers.
func attachError(ifindex int, mode Mode, err error) error {
	iface, lookup := net.InterfaceByIndex(ifindex)
	if lookup != nil {
		return fmt.Errorf("attach to interface %d: %w", ifindex, errors.Join(lookup, err))
	}
	step := fmt.Sprintf("attach to %s in %s mode", iface.Name, mode)
	switch {
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return fmt.Errorf("%s: %w", step, occupied(iface))
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%s: %w (use generic mode)", step, ErrNoDriverMode)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s: %w (run as root, or with CAP_NET_ADMIN and CAP_BPF)", step, err)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ERANGE), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("%s: %w at MTU %d: %w (lower the MTU, allow multi-buffer, or use generic mode)",
			step, ErrDriverRefused, iface.MTU, err)
	}
	return fmt.Errorf("%s: %w", step, err)
}
