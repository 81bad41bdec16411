package xdp

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/umem"
)

// Errors for errors.Is.
var (
	// ErrInterfaceDown: the interface or its link is down.
	ErrInterfaceDown = errors.New("interface is down")
	// ErrInterfaceGone: the interface was removed, or moved to another network
	// namespace. Its sockets will not work again.
	ErrInterfaceGone = errors.New("interface is gone")
	// ErrProgramGone: another process detached the XDP program from the interface.
	ErrProgramGone = errors.New("XDP program was detached from outside")
	// ErrQueueBusy: another socket has the queue.
	ErrQueueBusy = errors.New("queue is taken")
	// ErrNoZeroCopy: zero copy is required and was refused.
	ErrNoZeroCopy = errors.New("no zero copy")
	// ErrNoCardClock: times of the card's own clock are required, but not available.
	ErrNoCardClock = errors.New("no times of the card's own clock")
	// ErrPermission: a capability is missing.
	ErrPermission = errors.New("not permitted")
	// ErrMemlock: the limit on locked memory is too low for the region.
	ErrMemlock = errors.New("region exceeds the limit on locked memory")
	// ErrNotSupported: the kernel lacks a feature. The error is an
	// *[UnsupportedError].
	ErrNotSupported = errors.New("not supported")
	// ErrPassedOver: the kernel runs no XDP program for the packets of such an interface.
	ErrPassedOver = errors.New("no XDP program gets packets of such an interface")
	// ErrClosed: the Interface was closed.
	ErrClosed = errors.New("interface is closed")
)

// UnsupportedError names a feature the kernel lacks. It matches
// [ErrNotSupported].
type UnsupportedError struct {
	Feature string // what is missing
	Needs   string // the kernel or option that has it
	Err     error  // what the kernel said
}

// Error names the feature and its requirement.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%s: not supported by this kernel (needs %s): %v", e.Feature, e.Needs, e.Err)
}

// Is reports whether target is [ErrNotSupported].
func (e *UnsupportedError) Is(target error) bool { return target == ErrNotSupported }

// Unwrap returns the kernel's error.
func (e *UnsupportedError) Unwrap() error { return e.Err }

// BindError says that no acceptable way of binding was granted, and why each was refused. It
// matches [ErrNoZeroCopy] if zero copy was required.
type BindError struct {
	Interface string   // its name; of one that is made of others also its kind and those
	Below     []string // the interfaces that it is made of: the slaves of a bond, the parent of a macvlan
	Policy    Policy
	Refused   []Refusal
	// MTU is the interface's, and FrameMTU the largest whose packets fit a frame. Both are zero if
	// the packets fit.
	MTU, FrameMTU int
}

// Error lists the refusals.
func (e *BindError) Error() string {
	remedy := "try another interface or a newer kernel"
	if e.Policy == Require {
		remedy = "set the zero-copy policy to prefer to let the kernel copy"
	}
	if len(e.Below) > 0 {
		remedy = fmt.Sprintf("use %s below it, or %s", strings.Join(e.Below, ", "), remedy)
	}
	if e.MTU != 0 {
		why := fmt.Sprintf("packets of MTU %d do not fit a frame", e.MTU)
		return fmt.Sprintf("bind %s: %s: %s (lower the MTU to %d or less, or %s)", e.Interface, why, describe(e.Refused), e.FrameMTU, remedy)
	}
	return fmt.Sprintf("bind %s: %s (%s)", e.Interface, describe(e.Refused), remedy)
}

// Is reports whether target is [ErrNoZeroCopy] and zero copy was required.
func (e *BindError) Is(target error) bool {
	return target == ErrNoZeroCopy && e.Policy == Require
}

// Unwrap returns why each way was refused.
func (e *BindError) Unwrap() []error {
	errs := make([]error, len(e.Refused))
	for i, r := range e.Refused {
		errs[i] = r.Err
	}
	return errs
}

// socketError explains why the kernel refused an AF_XDP socket: xsk_create in net/xdp/xsk.c.
func socketError(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("open AF_XDP socket: %w: %w (run as root, or with CAP_NET_RAW)", ErrPermission, err)
	case errors.Is(err, unix.EAFNOSUPPORT):
		return fmt.Errorf("open AF_XDP socket: %w", &UnsupportedError{"AF_XDP", "CONFIG_XDP_SOCKETS", err})
	}
	return fmt.Errorf("open AF_XDP socket: %w", err)
}

// registerError explains why the kernel refused the region: xdp_umem_create in net/xdp/xdp_umem.c.
func registerError(size uint64, err error) error {
	switch {
	case errors.Is(err, unix.ENOBUFS):
		return fmt.Errorf("register region of %d bytes: %w%s: %w (raise LimitMEMLOCK or grant CAP_IPC_LOCK)", size, ErrMemlock, memlock(), err)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("register region of %d bytes: %w (lower the headroom, or use frames of 4096 bytes)", size, err)
	}
	return fmt.Errorf("register region of %d bytes: %w", size, err)
}

// memlock returns the limit on locked memory, for error texts.
func memlock() string {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
		return ""
	}
	if l.Cur == unix.RLIM_INFINITY {
		return ", now unlimited"
	}
	return fmt.Sprintf(", now %d KiB", l.Cur>>10)
}

// bindError explains why the kernel refused a bind: xp_assign_dev in
// net/xdp/xsk_buff_pool.c, and the drivers.
func bindError(a attempt, err error) error {
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%w: %w (another AF_XDP socket has it, of another program or of another flow: stop that, or choose other queues)", ErrQueueBusy, err)
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("%w: %w", ErrInterfaceGone, err)
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("the driver does not have it: %w", err)
	case errors.Is(err, unix.EINVAL) && a.zeroCopy:
		return fmt.Errorf("the driver refuses it for this card, or for such frames at this MTU: %w", err)
	}
	return err
}

// Granted is what the kernel granted an interface's sockets.
type Granted struct {
	ZeroCopy    bool      // the device writes frames itself; XDP_OPTIONS after the bind
	MultiBuffer bool      // packets may fill several frames
	Mode        bpf.Mode  // where the program runs; bpf.Any without one
	Dispatched  bool      // the program runs in libxdp's dispatcher, beside other programs
	NeedWakeup  bool      // the kernel reports when it needs a wake-up
	MaxPacket   uint32    // bytes of the longest packet the sockets take; 0: no limit
	Refused     []Refusal // better ways that were tried first
	// CardClock: packets have times of the card's clock, if the card has a time for them.
	// PTPClock is the number of that clock (/dev/ptpN), -1 if the driver names none.
	CardClock   bool
	PTPClock    int
	NoCardClock error // why CardClock is unset, if it was preferred
	NoArrival   error // why the times are those of Recv; nil: they are those of arrival, as far as is known
	// SendTimes: Port.SentAt says when packets left, by SendClock.
	SendTimes   bool
	SendClock   umem.Clock
	NoSendTimes error // why SendTimes is unset, if it was asked for
	// TagsStripped: the card removes VLAN tags from packets, and that cannot be disabled.
	TagsStripped bool
}

// WhyNotZeroCopy returns why the kernel copies; empty with zero copy, and if zero copy was not
// tried.
func (g Granted) WhyNotZeroCopy() string {
	if g.ZeroCopy {
		return ""
	}
	return describe(slices.DeleteFunc(slices.Clone(g.Refused), func(r Refusal) bool { return !r.ZeroCopy }))
}

// Refusal is one way of binding that was tried, and why it was refused.
type Refusal struct {
	ZeroCopy    bool
	MultiBuffer bool
	Err         error
}

func (r Refusal) String() string {
	return fmt.Sprintf("%s: %v", attempt{r.ZeroCopy, r.MultiBuffer}, r.Err)
}

func describe(rs []Refusal) string {
	parts := make([]string, len(rs))
	for i, r := range rs {
		parts[i] = r.String()
	}
	return strings.Join(parts, "; ")
}

// attempt is one way of binding.
type attempt struct{ zeroCopy, multiBuffer bool }

func (a attempt) String() string {
	name := "copy"
	if a.zeroCopy {
		name = "zero copy"
	}
	if a.multiBuffer {
		name += " with multi-buffer"
	}
	return name
}

// flags are the bind flags of the attempt.
func (a attempt) flags(needWakeup bool) uint16 {
	f := uint16(unix.XDP_COPY)
	if a.zeroCopy {
		f = unix.XDP_ZEROCOPY
	}
	if a.multiBuffer {
		f |= unix.XDP_USE_SG
	}
	if needWakeup {
		f |= unix.XDP_USE_NEED_WAKEUP
	}
	return f
}

// attempts returns the ways of binding to try, best first. Some drivers refuse zero copy and
// multi-buffer together although they grant zero copy alone. A bind without a mode would silently
// choose copy mode. So each way is requested explicitly.
func (c *Config) attempts(d *device) []attempt {
	var out []attempt
	if c.Policy != Copy && c.Mode != bpf.Generic {
		out = c.zeroCopies(d)
	}
	if c.Policy != Require {
		if c.Shape.MultiBuffer {
			out = append(out, attempt{multiBuffer: true})
		}
		out = append(out, attempt{})
	}
	return out
}

// zeroCopies returns the attempts with zero copy. With Gather it tries multi-buffer if the driver
// says that it has it, otherwise only if a packet may be longer than a frame.
func (c *Config) zeroCopies(d *device) []attempt {
	one, many := attempt{zeroCopy: true}, attempt{zeroCopy: true, multiBuffer: true}
	switch fits := d.mtu <= c.frameMTU(); {
	case !c.Shape.MultiBuffer:
		return []attempt{one}
	case !fits:
		return []attempt{many}
	case c.Gather && d.zcSegments > 1:
		return []attempt{many, one}
	}
	return []attempt{one, many}
}

// frameRoom is how many bytes of a packet one frame certainly holds. Newer kernels round it down to
// a multiple of 128 (xsk_pool_get_rx_frame_size in include/net/xdp_sock_drv.h). So the program does
// not pass on a longer packet, which the kernel would drop.
func (c *Config) frameRoom() uint32 { return c.Shape.Capacity(c.region().FrameSize()) &^ 127 }

// frameMTU is the largest MTU whose packets certainly fit a frame.
func (c *Config) frameMTU() int { return int(c.frameRoom()) - linkOverhead }

// linkOverhead is what an Ethernet frame has beyond the MTU: addresses, type and two VLAN tags. The
// checksum never reaches memory.
const linkOverhead = 14 + 2*4
