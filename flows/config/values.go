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

// Pages is the kind of page of the region.
type Pages string

// The kinds of pages.
const (
	PagesAuto     Pages = "auto" // 2MiB if they are free or can be reserved, or else ordinary
	Pages2MiB     Pages = "2MiB"
	Pages1GiB     Pages = "1GiB"
	PagesOrdinary Pages = "ordinary"
)

// Bytes returns the size of a page in bytes; 0 for an unknown kind.
func (p Pages) Bytes() Size {
	switch p {
	case PagesAuto, Pages2MiB:
		return 2 * MiB
	case Pages1GiB:
		return GiB
	case PagesOrdinary:
		return Size(os.Getpagesize())
	}
	return 0
}

// Restart says whether a flow that failed while it ran starts again by itself.
type Restart string

// The values of Restart.
const (
	RestartOnFailure Restart = "on-failure" // until it runs, or somebody stops it
	RestartNever     Restart = "never"
)

// Wait says how a worker waits for work.
type Wait string

// Ways to wait.
const (
	WaitSpin  Wait = "spin"  // poll again at once: lowest latency, uses the CPU fully
	WaitSleep Wait = "sleep" // sleep until there is something to do
)

// Engine is how a flow to storage receives packets of an interface.
type Engine string

// The engines.
const (
	EngineXDP    Engine = "xdp"    // takes packets from the host by AF_XDP sockets, or copies by a mirror
	EnginePacket Engine = "packet" // copies by a packet socket; the host keeps its packets
	EngineAuto   Engine = "auto"   // xdp where zero copy is granted and the traffic may be taken, else packet
)

// ZeroCopy is the policy for receiving packets without a copy by the kernel.
type ZeroCopy string

// The policies.
const (
	ZeroCopyRequire ZeroCopy = "require" // refuse to run without
	ZeroCopyPrefer  ZeroCopy = "prefer"  // try, fall back to a copy
	ZeroCopyCopy    ZeroCopy = "copy"    // do not try
)

// Timestamps selects the clock of arrival times.
type Timestamps string

// The clocks.
const (
	TimestampsSoftware Timestamps = "software" // the system's
	TimestampsHardware Timestamps = "hardware" // the card's own; refuse to run without
	TimestampsPrefer   Timestamps = "prefer"   // the card's own if the driver provides it, else the system's
)

// Mirror selects the packets of an interface to copy. The host still gets the packets.
type Mirror string

// The directions. Empty: the flow takes packets from the host and copies none.
const (
	MirrorBoth    Mirror = "both"    // received and sent packets
	MirrorIngress Mirror = "ingress" // packets that arrive
	MirrorEgress  Mirror = "egress"  // packets that the host sends
)

// Steer says whether the card puts the packets of a flow into the flow's queues.
type Steer string

// The policies. Empty: the card chooses the queue of each packet.
const (
	SteerRequire Steer = "require" // refuse to run without
	SteerPrefer  Steer = "prefer"  // steer if the card accepts the rules
)

// Beside names the dispatcher that a flow's XDP program joins, so that other programs can run on
// the interface too.
type Beside string

// BesideLibxdp joins the dispatcher of libxdp and its tools. Empty: the flow needs the interface
// for itself.
const BesideLibxdp Beside = "libxdp"

// Layout says how packets become records of the capture file.
type Layout string

// The layouts.
const (
	LayoutSlot   Layout = "slot"   // each frame is its own record: no copy, more bytes
	LayoutPacked Layout = "packed" // back to back: one copy, fewest bytes
)

// Prepare says how a segment's space is prepared before use.
type Prepare string

// The ways to prepare.
const (
	PrepareZero     Prepare = "zero"     // zeroes are written
	PrepareAllocate Prepare = "allocate" // the file system allocates the space; files only
	PrepareNone     Prepare = "none"     // not at all
)

// Level is the least severe level that is logged.
type Level string

// The levels.
const (
	LevelDebug Level = "debug"
	LevelInfo  Level = "info"
	LevelWarn  Level = "warn"
	LevelError Level = "error"
)

// Slog returns the level for log/slog; slog.LevelInfo for an unknown one.
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

// Method is how messages get from sender to receiver.
type Method string

// The methods.
const (
	MethodAny   Method = "any"   // each receiver decides; for flows to peers only
	MethodSend  Method = "send"  // RDMA SEND into receives that are posted
	MethodWrite Method = "write" // RDMA WRITE with immediate into granted memory
)

// Choose selects the peers that get a packet or message.
type Choose string

// The ways to choose.
const (
	ChooseAll   Choose = "all"   // all peers
	ChooseHash  Choose = "hash"  // one peer, by the addresses and ports of the packet
	ChooseRound Choose = "round" // one peer, in rotation
)

// Place is where packets of an interface land that an attached program gets.
type Place string

// The places.
const (
	PlaceCopy Place = "copy" // in frames of the flow, which copies those that the program gets into its memory
	PlaceHere Place = "here" // in the program's memory
)

// PathMode says how several paths to a peer are used.
type PathMode string

// The modes.
const (
	PathStandby PathMode = "standby" // one at a time: the next one when it fails
	PathActive  PathMode = "active"  // all at the same time. Followers, and peers of a channel, use one each, and prefer different ones
)

// Policy says what happens when a peer's queue is full.
type Policy string

// The policies.
const (
	PolicyWait       Policy = "wait"        // the flow waits for the peer
	PolicyDropNewest Policy = "drop_newest" // drop the new message for this peer
	PolicyDropOldest Policy = "drop_oldest" // drop the message that has waited longest
	PolicyDisconnect Policy = "disconnect"  // drop everything queued for the peer, and reconnect
)

// Acknowledge says when a message is acknowledged to its client.
type Acknowledge string

// The conditions. The first three apply to logs, the others to flows with peers.
const (
	AcknowledgeReceived Acknowledge = "received" // it is in memory, checked
	AcknowledgeWritten  Acknowledge = "written"  // it is in the file
	AcknowledgeDurable  Acknowledge = "durable"  // it is on stable storage
	AcknowledgeAny      Acknowledge = "any"      // one of the peers has it
	AcknowledgeMost     Acknowledge = "most"     // more than half of them have it
	AcknowledgeAll      Acknowledge = "all"      // all of them have it

	// acknowledgeQuorum is the name of AcknowledgeMost in earlier releases. The parser accepts it so
	// that the validator can explain its refusal.
	acknowledgeQuorum Acknowledge = "quorum"
)

// AuthGroup is a Diffie-Hellman group for the authentication of NVMe hosts.
type AuthGroup string

// The Diffie-Hellman groups of RFC 7919, and none. Without a group, keys need high entropy.
const (
	AuthNone      AuthGroup = "none"
	AuthFFDHE2048 AuthGroup = "ffdhe2048"
	AuthFFDHE3072 AuthGroup = "ffdhe3072"
	AuthFFDHE4096 AuthGroup = "ffdhe4096"
	AuthFFDHE6144 AuthGroup = "ffdhe6144"
	AuthFFDHE8192 AuthGroup = "ffdhe8192"
)

// SumType is the type of the elements of a sum.
type SumType string

// The types of elements.
const (
	SumInt32   SumType = "int32"
	SumInt64   SumType = "int64"
	SumFloat32 SumType = "float32"
	SumFloat64 SumType = "float64"
)

// ByteOrder is the order of the bytes of a number.
type ByteOrder string

// The orders.
const (
	BigEndian    ByteOrder = "big"
	LittleEndian ByteOrder = "little"
)

// ANAState is how a flow reaches namespaces, as NVMe hosts see it (asymmetric namespace access).
type ANAState string

// The states.
const (
	ANAOptimized    ANAState = "optimized"     // hosts prefer this address
	ANANonOptimized ANAState = "non-optimized" // hosts use it when there is no optimized one
	ANAInaccessible ANAState = "inaccessible"  // hosts send nothing to it
)

// Controllers are the lowest and the highest number of controllers (NVMe: CNTLID).
type Controllers [2]uint16

// MaxController is the highest number that a controller may have.
const MaxController = 0xffef

// String formats the range as in a configuration.
func (c Controllers) String() string { return fmt.Sprintf("%d-%d", c[0], c[1]) }

// parseControllers parses a range such as 1-1000.
func parseControllers(s string) (Controllers, error) {
	first, last, _ := strings.Cut(s, "-")
	a, err := parseInt(first)
	b, wrongLast := parseInt(last)
	if err != nil || wrongLast != nil || a < 1 || b < a || b > MaxController {
		return Controllers{}, fmt.Errorf("%s is not a range like 1-1000, from 1 to %d", quote(s), MaxController)
	}
	return Controllers{uint16(a), uint16(b)}, nil
}

// All values of each type, in the order in which messages list them.
var (
	allPages      = []Pages{PagesAuto, Pages2MiB, Pages1GiB, PagesOrdinary}
	allRestarts   = []Restart{RestartOnFailure, RestartNever}
	allWaits      = []Wait{WaitSpin, WaitSleep}
	allZeroCopies = []ZeroCopy{ZeroCopyRequire, ZeroCopyPrefer, ZeroCopyCopy}
	allTimestamps = []Timestamps{TimestampsSoftware, TimestampsHardware, TimestampsPrefer}
	allEngines    = []Engine{EngineXDP, EnginePacket, EngineAuto}
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
	allPlaces     = []Place{PlaceCopy, PlaceHere}
	allPathModes  = []PathMode{PathStandby, PathActive}
	allPolicies   = []Policy{PolicyWait, PolicyDropNewest, PolicyDropOldest, PolicyDisconnect}
	allANAStates  = []ANAState{ANAOptimized, ANANonOptimized, ANAInaccessible}
	allAuthGroups = []AuthGroup{AuthNone, AuthFFDHE2048, AuthFFDHE3072, AuthFFDHE4096, AuthFFDHE6144, AuthFFDHE8192}
	allSumTypes   = []SumType{SumInt32, SumInt64, SumFloat32, SumFloat64}
	allByteOrders = []ByteOrder{BigEndian, LittleEndian}

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

// units are listed from the largest. The last one has no name in a configuration.
var units = []struct {
	name string
	size Size
}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"B", Byte}, {"", Byte}}

// String formats the size as in a configuration: "4000", "64KiB", "1GiB". The text is exact.
func (s Size) String() string {
	for _, u := range units[:4] {
		if s >= u.size && s%u.size == 0 {
			return strconv.FormatUint(uint64(s/u.size), 10) + u.name
		}
	}
	return strconv.FormatUint(uint64(s), 10)
}

// roundUp returns s rounded up to a multiple of unit. It returns s if unit is 0 or the result would
// overflow.
func (s Size) roundUp(unit Size) Size {
	if unit == 0 || s%unit == 0 || s > ^Size(0)-unit {
		return s
	}
	return s - s%unit + unit
}

// Room is an amount of disk space in bytes. A negative Room is a percentage of the disk.
type Room int64

// DefaultRoom is the space that stays free where a configuration does not say how much: 5% of the disk, at most
// mostDefaultRoom. Nothing recorded is removed for it.
const (
	DefaultRoom     Room = -100
	mostDefaultRoom      = 10 * GiB
)

// Of returns the amount in bytes on a disk of this size.
func (r Room) Of(disk uint64) uint64 {
	if r == DefaultRoom {
		return min(disk/100*5, uint64(mostDefaultRoom))
	}
	if r < 0 {
		return disk / 100 * uint64(-r)
	}
	return uint64(r)
}

// String formats the amount as in a configuration.
func (r Room) String() string {
	if r == DefaultRoom {
		return fmt.Sprintf("5%%, at most %s", mostDefaultRoom)
	}
	if r < 0 {
		return strconv.Itoa(int(-r)) + "%"
	}
	return Size(r).String()
}

// ParseRoom parses a size or a percentage.
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

// ParseMode parses the permissions of a file as chmod does. The owner of the file must be able to
// read and write it.
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

// checkOwner requires USER, USER:GROUP or :GROUP.
func checkOwner(s string) error {
	user, group, both := strings.Cut(s, ":")
	if user != "" && !isUser(user) || both && !isUser(group) || s == "" {
		return fmt.Errorf("%s is not an owner like capture or capture:adm", quote(s))
	}
	return nil
}

// Pace is how fast packets of captures are sent. The zero value sends them at the recorded times.
type Pace struct {
	By    PaceBy
	Value float64 // factor, packets or bits per second; 0 with PaceTop and PaceRecorded
}

// PaceBy is the unit of a pace.
type PaceBy uint8

// The units.
const (
	PaceRecorded PaceBy = iota // as the packets were recorded
	PaceTop                    // as fast as the interface takes them
	PaceTimes                  // a multiple of the recorded speed
	PacePackets                // packets per second
	PaceBits                   // bits per second, of Ethernet frames without checksums
)

// paceUnits are the units of a number. If one unit is a suffix of another, the longer one comes
// first.
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

// ParsePace parses "recorded", "top", or a number with a unit: 2x, 10000pps, 250Mbit/s.
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

// String formats the pace as in a configuration.
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
