package config

import (
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
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

// Wait says how a worker waits for work.
type Wait string

// The ways to wait.
const (
	WaitSpin  Wait = "spin"  // look again at once: lowest latency, costs the CPU
	WaitSleep Wait = "sleep" // sleep for Worker.Sleep
	WaitPoll  Wait = "poll"  // sleep until a device has something
)

// ZeroCopy reports whether packets may be copied by the kernel into the region.
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

// Mirror is which packets of an interface are copied, while the host goes on with them.
type Mirror string

// The directions. Empty, packets are taken from the host and not copied.
const (
	MirrorBoth    Mirror = "both"    // what arrives, and what the host sends
	MirrorIngress Mirror = "ingress" // what arrives
	MirrorEgress  Mirror = "egress"  // what the host sends
)

// Steer is whether the card puts the packets of a flow into its queues.
type Steer string

// The wishes. Empty, packets are in whatever queue the card chooses.
const (
	SteerRequire Steer = "require" // refuse to run without
	SteerPrefer  Steer = "prefer"  // where the card takes the rules
)

// Beside names the dispatcher that a flow's XDP program joins, to run beside other programs.
type Beside string

// BesideLibxdp joins that of libxdp and its tools. Empty, the flow has the interface for itself, or does not run.
const BesideLibxdp Beside = "libxdp"

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

// Method is how messages get from one end to the other.
type Method string

// The methods.
const (
	MethodAny   Method = "any"   // as the receiver takes them; of flows to peers only
	MethodSend  Method = "send"  // RDMA SEND into receives that are posted
	MethodWrite Method = "write" // RDMA WRITE with immediate into memory that is granted
)

// Choose is which of a flow's peers something is sent to.
type Choose string

// The ways to choose.
const (
	ChooseAll   Choose = "all"   // every one
	ChooseHash  Choose = "hash"  // one, by the addresses and ports of the packet
	ChooseRound Choose = "round" // one after the other
)

// Policy is what happens when a peer's queue is full.
type Policy string

// The policies.
const (
	PolicyWait       Policy = "wait"        // the flow waits for the peer
	PolicyDropNewest Policy = "drop_newest" // what is new is not for this peer
	PolicyDropOldest Policy = "drop_oldest" // what has waited longest makes room
	PolicyDisconnect Policy = "disconnect"  // the peer loses what waits, and is connected again
)

// Acknowledge says when a message is acknowledged to its client.
type Acknowledge string

// The conditions: the first three of a log, the others of a flow with peers.
const (
	AcknowledgeReceived Acknowledge = "received" // it is in memory, checked
	AcknowledgeWritten  Acknowledge = "written"  // it was written
	AcknowledgeDurable  Acknowledge = "durable"  // it is on stable storage
	AcknowledgeAny      Acknowledge = "any"      // one of the peers has it
	AcknowledgeMost     Acknowledge = "most"     // more than half of them have it
	AcknowledgeAll      Acknowledge = "all"      // all of them have it

	// acknowledgeQuorum is what earlier releases called AcknowledgeMost. It is read so that its refusal can say why.
	acknowledgeQuorum Acknowledge = "quorum"
)

// AuthGroup is a group of the Diffie-Hellman exchange by which NVMe hosts prove who they are.
type AuthGroup string

// The Diffie-Hellman groups of RFC 7919, and none, which is enough for keys of high entropy.
const (
	AuthNone      AuthGroup = "none"
	AuthFFDHE2048 AuthGroup = "ffdhe2048"
	AuthFFDHE3072 AuthGroup = "ffdhe3072"
	AuthFFDHE4096 AuthGroup = "ffdhe4096"
	AuthFFDHE6144 AuthGroup = "ffdhe6144"
	AuthFFDHE8192 AuthGroup = "ffdhe8192"
)

// SumType is the type of the elements that are added.
type SumType string

// The types of elements.
const (
	SumInt32   SumType = "int32"
	SumInt64   SumType = "int64"
	SumFloat32 SumType = "float32"
	SumFloat64 SumType = "float64"
)

// All values of each kind, in the order messages list them.
var (
	allPages      = []Pages{Pages2MiB, Pages1GiB, PagesOrdinary}
	allWaits      = []Wait{WaitSpin, WaitSleep, WaitPoll}
	allZeroCopies = []ZeroCopy{ZeroCopyRequire, ZeroCopyPrefer, ZeroCopyCopy}
	allTimestamps = []Timestamps{TimestampsSoftware, TimestampsHardware, TimestampsPrefer}
	allMirrors    = []Mirror{MirrorBoth, MirrorIngress, MirrorEgress}
	allSteers     = []Steer{SteerRequire, SteerPrefer}
	allBesides    = []Beside{BesideLibxdp}
	allLayouts    = []Layout{LayoutSlot, LayoutPacked}
	allPrepares   = []Prepare{PrepareZero, PrepareAllocate, PrepareNone}
	allLevels     = []Level{LevelDebug, LevelInfo, LevelWarn, LevelError}
	allFormats    = []Format{FormatText, FormatJSON}
	allChoices    = []Choose{ChooseAll, ChooseHash, ChooseRound}
	allMethods    = []Method{MethodSend, MethodWrite}
	peerMethods   = []Method{MethodAny, MethodSend, MethodWrite}
	allPolicies   = []Policy{PolicyWait, PolicyDropNewest, PolicyDropOldest, PolicyDisconnect}
	allAuthGroups = []AuthGroup{AuthNone, AuthFFDHE2048, AuthFFDHE3072, AuthFFDHE4096, AuthFFDHE6144, AuthFFDHE8192}
	allSumTypes   = []SumType{SumInt32, SumInt64, SumFloat32, SumFloat64}

	allAcknowledges  = slices.Concat(logAcknowledges, peerAcknowledges)
	logAcknowledges  = []Acknowledge{AcknowledgeReceived, AcknowledgeWritten, AcknowledgeDurable}
	peerAcknowledges = []Acknowledge{AcknowledgeAny, AcknowledgeMost, AcknowledgeAll}
)

// Size is a number of bytes.
type Size uint64

// Units of Size.
const (
	Byte Size = 1
	KiB       = 1024 * Byte
	MiB       = 1024 * KiB
	GiB       = 1024 * MiB
	TiB       = 1024 * GiB
)

// units from the largest; the last has no name in a configuration.
var units = []struct {
	name string
	size Size
}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"B", Byte}, {"", Byte}}

// String writes the size as a configuration would: "4000", "64KiB", "1GiB". The
// text is exact.
func (s Size) String() string {
	for _, u := range units[:4] {
		if s >= u.size && s%u.size == 0 {
			return strconv.FormatUint(uint64(s/u.size), 10) + u.name
		}
	}
	return strconv.FormatUint(uint64(s), 10)
}

// roundUp is s rounded up to a multiple of unit; s itself for a unit of 0 or
// where the result would not fit.
func (s Size) roundUp(unit Size) Size {
	if unit == 0 || s%unit == 0 || s > ^Size(0)-unit {
		return s
	}
	return s - s%unit + unit
}

// Room is an amount of a disk's space: bytes, or, below zero, so many per cent of
// the disk.
type Room int64

// Of returns the amount in bytes on a disk of this size.
func (r Room) Of(disk uint64) uint64 {
	if r < 0 {
		return disk / 100 * uint64(-r)
	}
	return uint64(r)
}

// String is the amount as it is configured.
func (r Room) String() string {
	if r < 0 {
		return strconv.Itoa(int(-r)) + "%"
	}
	return Size(r).String()
}

// ParseRoom reads a size or a percentage.
func ParseRoom(s string) (Room, error) {
	if digits, is := strings.CutSuffix(s, "%"); is {
		n, err := parseInt(digits)
		if err != nil || !within(n, 0, 99) {
			return 0, fmt.Errorf("%s is not from 0%% to 99%%", quote(s))
		}
		return Room(-n), nil
	}
	size, err := parseSize(s)
	if err == nil && size > math.MaxInt64 {
		err = fmt.Errorf("%s is too large", quote(s))
	}
	return Room(size), err
}

// ParseMode reads the permissions of a file as chmod does. Who writes the file must be able to
// read it and write to it.
func ParseMode(s string) (fs.FileMode, error) {
	v, err := strconv.ParseUint(s, 8, 32)
	if err != nil || len(s) < 3 || len(s) > 4 || v > 0o777 {
		return 0, fmt.Errorf("%s is not a file's mode like 0640", quote(s))
	}
	return fs.FileMode(v), checkMode(fs.FileMode(v))
}

func checkMode(m fs.FileMode) error {
	if m&^0o777 != 0 || m != 0 && m&0o600 != 0o600 {
		return fmt.Errorf("mode %04o is not possible: the owner must be able to read and to write", uint32(m))
	}
	return nil
}

// checkOwner wants USER, USER:GROUP or :GROUP.
func checkOwner(s string) error {
	user, group, both := strings.Cut(s, ":")
	if user != "" && !isUser(user) || both && !isUser(group) || s == "" {
		return fmt.Errorf("%s is not an owner like capture or capture:adm", quote(s))
	}
	return nil
}

// Pace is how fast the packets of captures are sent. The zero value is as they were recorded.
type Pace struct {
	By    PaceBy
	Value float64 // times as fast, packets or bits a second; 0 with PaceTop and PaceRecorded
}

// PaceBy is the unit of a pace.
type PaceBy uint8

// The ways to say a pace.
const (
	PaceRecorded PaceBy = iota // as the packets were recorded
	PaceTop                    // as fast as the interface takes them
	PaceTimes                  // so many times as fast as recorded
	PacePackets                // packets a second
	PaceBits                   // bits a second, of Ethernet frames without their checksums
)

// paceUnits are those of a number, the longest first where one ends like another.
var paceUnits = []struct {
	name string
	by   PaceBy
	one  float64
}{
	{"x", PaceTimes, 1}, {"pps", PacePackets, 1},
	{"Gbit/s", PaceBits, 1e9}, {"Mbit/s", PaceBits, 1e6}, {"kbit/s", PaceBits, 1e3}, {"bit/s", PaceBits, 1},
}

// Bounds of paces. Timestamps have a resolution of one nanosecond.
const (
	minPace = 1e-6
	maxPace = 1e12
)

// ParsePace reads "recorded", "top", or a number with a unit: 2x, 10000pps, 250Mbit/s.
func ParsePace(s string) (p Pace, err error) {
	switch s {
	case "recorded":
		return Pace{By: PaceRecorded}, nil
	case "top":
		return Pace{By: PaceTop}, nil
	}
	for _, u := range paceUnits {
		digits, is := strings.CutSuffix(s, u.name)
		if !is {
			continue
		}
		v, err := strconv.ParseFloat(digits, 64)
		if err != nil {
			break
		}
		p = Pace{u.by, v * u.one}
		return p, checkPace(p)
	}
	return p, fmt.Errorf("%s is not a pace like recorded, top, 2x, 10000pps or 250Mbit/s", quote(s))
}

// checkPace checks a pace.
func checkPace(p Pace) error {
	switch {
	case p.By > PaceBits:
		return fmt.Errorf("%d is no way to say a pace", p.By)
	case p.By <= PaceTop && p.Value == 0:
		return nil
	case math.IsNaN(p.Value) || p.Value < minPace || p.Value > maxPace:
		return fmt.Errorf("a pace of %v is not from %g to %g", p.Value, minPace, float64(maxPace))
	}
	return nil
}

// String is the pace as a configuration has it.
func (p Pace) String() string {
	switch p.By {
	case PaceRecorded:
		return "recorded"
	case PaceTop:
		return "top"
	}
	for _, u := range paceUnits {
		if v := p.Value / u.one; u.by == p.By && (v >= 1 || u.one == 1) {
			return strconv.FormatFloat(v, 'f', -1, 64) + u.name
		}
	}
	return ""
}
