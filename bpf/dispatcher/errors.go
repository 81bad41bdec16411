package dispatcher

import "errors"

// Errors to be matched with errors.Is.
var (
	// ErrOther: the program on the interface is no dispatcher.
	ErrOther = errors.New("the XDP program is no dispatcher of libxdp")
	// ErrVersion: the dispatcher has a version of the protocol that this package does not know.
	ErrVersion = errors.New("dispatcher of another version")
	// ErrFull: the dispatcher has no room for another program.
	ErrFull = errors.New("the dispatcher is full")
	// ErrNoFiles: there is no BPF file system where libxdp pins programs.
	ErrNoFiles = errors.New("no BPF file system")
	// ErrNoPins: the programs of the dispatcher are not pinned in libxdp's directory.
	ErrNoPins = errors.New("the dispatcher's programs are not pinned")
	// ErrPermission: a capability is missing.
	ErrPermission = errors.New("not permitted")
	// ErrLocked means that another process keeps libxdp's directory locked.
	ErrLocked = errors.New("locked by another process")
	// ErrRefused: the driver refuses the new dispatcher. The old one stays.
	ErrRefused = errors.New("the driver refuses the dispatcher")
	// errGone: the program was taken out of the dispatcher, or the dispatcher off the interface.
	errGone = errors.New("the program is no longer in the dispatcher")
	// ErrBusy: other processes exchanged the dispatcher in every attempt.
	ErrBusy = errors.New("the dispatcher is being exchanged by others")
)

// errChanged means that another process exchanged the dispatcher during the call.
var errChanged = errors.New("the dispatcher was exchanged during the call")

// capabilities is what to do about an operation that was not permitted.
const capabilities = "run as root, or with CAP_SYS_ADMIN, CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, and as another user CAP_DAC_OVERRIDE; " +
	"a daemon keeps them that was started with a flow that has beside: start it again"
