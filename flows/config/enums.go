package config

import (
	"log/slog"
	"os"
)

// Pages is the kind of page the region is made of.
type Pages string

// The kinds of pages.
const (
	Pages2MiB     Pages = "2MiB"
	Pages1GiB     Pages = "1GiB"
	PagesOrdinary Pages = "ordinary"
)

// Bytes is the size of one page in bytes; 0 for a kind which does not exist.
func (p Pages) Bytes() Size {
	switch p {
	case Pages2MiB:
		return 2 * MiB
	case Pages1GiB:
		return GiB
	case PagesOrdinary:
		return Size(os.Getpagesize())
	}
	return 0
}

// Wait is what a worker does when there is nothing to do.
type Wait string

// The ways to wait.
const (
	WaitSpin  Wait = "spin"  // look again at once: lowest latency, costs the CPU
	WaitSleep Wait = "sleep" // sleep for Worker.Sleep
	WaitPoll  Wait = "poll"  // sleep until a device has something
)

// ZeroCopy says whether packets may be copied by the kernel into the region.
type ZeroCopy string

// The policies.
const (
	ZeroCopyRequire ZeroCopy = "require" // refuse to run without
	ZeroCopyPrefer  ZeroCopy = "prefer"  // try, fall back to a copy
	ZeroCopyCopy    ZeroCopy = "copy"    // do not try
)

// Timestamps says whose clock times of arrival are of.
type Timestamps string

// The clocks.
const (
	TimestampsSoftware Timestamps = "software" // the system's
	TimestampsHardware Timestamps = "hardware" // the card's own; refuse to run without
	TimestampsPrefer   Timestamps = "prefer"   // the card's own where the driver gives it
)

// Layout is how packets are laid out in the capture file.
type Layout string

// The layouts.
const (
	LayoutSlot   Layout = "slot"   // each frame is its own record: no copy, more bytes
	LayoutPacked Layout = "packed" // back to back: one copy, fewest bytes
)

// Prepare is how a segment's space is prepared before it is used.
type Prepare string

// The ways to prepare.
const (
	PrepareZero     Prepare = "zero"     // zeroes are written to it
	PrepareAllocate Prepare = "allocate" // the file system sets it aside; files only
	PrepareNone     Prepare = "none"     // not at all
)

// Level is the least severe kind of message which is logged.
type Level string

// The levels.
const (
	LevelDebug Level = "debug"
	LevelInfo  Level = "info"
	LevelWarn  Level = "warn"
	LevelError Level = "error"
)

// Slog is the level as log/slog has it; slog.LevelInfo for one which does not
// exist.
func (l Level) Slog() slog.Level {
	switch l {
	case LevelDebug:
		return slog.LevelDebug
	case LevelWarn:
		return slog.LevelWarn
	case LevelError:
		return slog.LevelError
	}
	return slog.LevelInfo
}

// Format is the form of the log.
type Format string

// The formats.
const (
	FormatText Format = "text"
	FormatJSON Format = "json"
)

// All values of each kind, in the order messages list them.
var (
	allPages      = []Pages{Pages2MiB, Pages1GiB, PagesOrdinary}
	allWaits      = []Wait{WaitSpin, WaitSleep, WaitPoll}
	allZeroCopies = []ZeroCopy{ZeroCopyRequire, ZeroCopyPrefer, ZeroCopyCopy}
	allTimestamps = []Timestamps{TimestampsSoftware, TimestampsHardware, TimestampsPrefer}
	allLayouts    = []Layout{LayoutSlot, LayoutPacked}
	allPrepares   = []Prepare{PrepareZero, PrepareAllocate, PrepareNone}
	allLevels     = []Level{LevelDebug, LevelInfo, LevelWarn, LevelError}
	allFormats    = []Format{FormatText, FormatJSON}
)
