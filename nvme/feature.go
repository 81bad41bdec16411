package nvme

import (
	"errors"
	"fmt"
)

// feature is something only newer kernels have, and that is done without where
// it is missing.
type feature uint32

const (
	featureNoMmap      feature = 1 << iota // rings in the caller's memory, 6.5
	featureNoSQArray                       // no index array, 6.6
	featureDefer                           // completions handled when asked for, 6.1
	featureGatherFixed                     // READV_FIXED and WRITEV_FIXED, 6.15
)

// Granted is what the kernel gave a queue of what was asked for.
type Granted struct {
	RingsInRegion bool // the rings lie in the region's control area, else in the kernel's memory
	NoIndexArray  bool // submissions need no index array
	DeferTaskrun  bool // completions are handled when asked for, else whenever the thread enters the kernel
	GatherFixed   bool // chains use registered memory, else their pages are pinned each time
	Poll          bool // the device is polled for completions
	Submitter     bool // a thread of the kernel submits
}

func (g Granted) String() string {
	rings := "kernel memory"
	if g.RingsInRegion {
		rings = "the region"
	}
	gather := "pages pinned per chain"
	if g.GatherFixed {
		gather = "registered memory"
	}
	return fmt.Sprintf("rings in %s, chains from %s, deferred completions %t", rings, gather, g.DeferTaskrun)
}

// ErrNotSupported is matched by every error that says the kernel, or what the
// target lies on, lacks something this package cannot do without.
var ErrNotSupported = errors.New("not supported")

// NotSupportedError says what is missing and since when it is there. It matches
// ErrNotSupported.
type NotSupportedError struct {
	Feature string // what is missing
	Remedy  string // what to do about it
}

func (e *NotSupportedError) Error() string {
	return fmt.Sprintf("%s is not supported here (%s)", e.Feature, e.Remedy)
}

// Is reports whether target is ErrNotSupported.
func (e *NotSupportedError) Is(target error) bool { return target == ErrNotSupported }
