package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach"
	"github.com/unifiedd/unifiedd/flows/cluster"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/state"
	"github.com/unifiedd/unifiedd/flows/trace"
	"github.com/unifiedd/unifiedd/internal/index"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// Quota is a flow's part of the region.
type Quota struct {
	Frames  int
	Extents int
}

// Shared is what the flows of a daemon share, as one of them sees it.
type Shared struct {
	Quota       Quota
	Config      *config.Config       // of all flows
	Interfaces  *device.Interfaces   // that flows receive from
	Fanouts     *device.Fanouts      // of packet sockets
	Devices     *device.RDMADevices  // that flows use
	Attach      *attach.Hub          // where programs attach; nil: none can
	States      *state.Set           // that flows update; nil: there are none
	Node        int                  // NUMA node of the region; numa.Unknown: it is on several
	Limit       uint64               // packets after which a flow is done; 0: no limit
	Application string               // name of the writer, for capture files
	Release     string               // of this program, for the other members of a group
	Stream      io.Writer            // replaces the disk; may be nil
	MakeIndex   index.Maker          // nil: make indexes in this process
	Complete    func(path string)    // called for each complete file; may be nil
	Notes       string               // directory for notes about our rules in cards
	Context     context.Context      // cancels opening; may be nil
	Credentials *connect.Credentials // of RDMA connections; nil: no TLS
	Names       *cluster.Names       // where peers are that flows name; nil: flows name none
}

// Deposed counts records that a member of a group loses because another member leads. It outlives the
// runs of a flow: the flow begins again when its log is cut. Any goroutine may use it.
type Deposed struct {
	Fenced atomic.Uint64 // appended here as the leader, and not confirmed by any other member when a later epoch began
	Cut    atomic.Uint64 // cut off from the log here, because the leader does not have them
}

// Env has everything that is needed to open a flow.
type Env struct {
	Flow   config.Flow
	Region *umem.Region
	Shared Shared
	Do     func(func() error) error // runs a function on the worker's thread
	Events bool                     // the worker waits for events: it does not spin
	Log    *slog.Logger
	Book   *umem.Book
	Holder *umem.Holder // of the worker's frames
	Err    *FirstError
	Trace  *trace.Recorder // of the flow, and outlives the run; nil: nothing is recorded
	Before uint64          // a log must end before this position; 0: where it ends
	Undo   Cleanup         // closes what is open so far
	// Deposed is of the flow, and outlives the run.
	Deposed *Deposed
	// Halt is the kill switch of a flow that sends orders.
	Halt *Halt
}

// Open opens the books of a flow in an Env whose configuration fields are set. The caller runs Undo,
// unless NewRun has taken it over.
func (e *Env) Open() (err error) {
	name := e.Name()
	e.Err = NewFirstError()
	e.Book = e.Region.NewBook(name)
	e.Undo.Add(e.Book.Close)
	if e.Holder, err = e.Book.NewHolder(umem.OwnerWorker, name); err != nil {
		return err
	}
	e.Undo.Add(func() error { e.Holder.Close(); return nil })
	return nil
}

// Name is what devices and frame owners call the flow.
func (e *Env) Name() string { return "flow " + e.Flow.Name }

// Context returns the context that cancels opening. It is never nil.
func (e *Env) Context() context.Context {
	if e.Shared.Context == nil {
		return context.Background()
	}
	return e.Shared.Context
}

// UseDevice keeps an RDMA device open until the flow is closed.
func (e *Env) UseDevice(name string) (*device.RDMA, error) {
	d, err := e.Shared.Devices.Open(name)
	if err == nil {
		e.Undo.Add(func() error { return e.Shared.Devices.Release(d) })
	}
	return d, err
}

// PlacesOf returns where a peer is that the flow names as NAME/FLOW, and then where the other members of its group are.
// It returns none for a peer with an address. The places are open until the flow is closed.
func (e *Env) PlacesOf(p *config.Peer) (all []*cluster.Place, err error) {
	if p.Peer == "" {
		return nil, nil
	}
	if e.Shared.Names == nil {
		return nil, fmt.Errorf("peer %s: nothing says where it is: add cluster.resolver", p.Peer)
	}
	for _, name := range append([]string{p.Peer}, p.Others...) {
		one, err := e.Shared.Names.Place(name)
		if err != nil {
			return nil, err
		}
		e.Undo.Add(one.Close)
		all = append(all, one)
	}
	return all, nil
}

// MinExtents is how many extents a packed layout needs: one is filled while another is written.
const MinExtents = 2

// TakeExtents takes extents: at most most of the flow's quota, and MinExtents at least.
func (e *Env) TakeExtents(most int) ([]umem.Frame, error) {
	extents := make([]umem.Frame, max(MinExtents, min(most, e.Shared.Quota.Extents)))
	got := e.Holder.TakeExtents(extents)
	if got < MinExtents {
		return nil, fmt.Errorf("the region has %d free extents for this flow; layout packed needs %d at least: raise region.extents", got, MinExtents)
	}
	return extents[:got], nil
}

// Section describes the writer of a capture.
func (e *Env) Section() pcapng.Section {
	return pcapng.Section{Comment: e.Flow.To.Comment, Hardware: processor(), OS: kernel(), Application: e.Shared.Application}
}

// Origin names where a flow receives from, for messages.
func Origin(from config.From) string {
	if from.Generate > 0 {
		return "generated packets"
	}
	return cmp.Or(strings.Join(from.All(), ", "), from.Listen, programName(from.Attach), channelName(from.Channel), from.Device, from.File, strings.Join(from.Files, ", "))
}

// Destination names where a flow transmits to, for messages.
func Destination(to config.To) string {
	if to.Discard {
		return "nowhere"
	}
	if to.Order != nil {
		return cmp.Or(programName(to.Order.Given), "exchange "+to.Order.Connect)
	}
	var peers []string
	for _, p := range to.Peers {
		peers = append(peers, p.Name)
	}
	return cmp.Or(to.Device, to.File, to.Interface, to.Listen, programName(to.Attach), channelName(to.Channel), stateName(to.State), strings.Join(peers, ", "))
}

// channelName names a channel in messages.
func channelName(name string) string {
	if name == "" {
		return ""
	}
	return "channel " + name
}

// programName is what messages call an attached program; empty without a name.
func programName(name string) string {
	if name == "" {
		return ""
	}
	return "program " + name
}

// stateName is what messages call a state; empty without a name.
func stateName(name string) string {
	if name == "" {
		return ""
	}
	return "state " + name
}

// kernel is the operating system's name and release.
func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "Linux"
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}

// processor is the processor's name, or empty.
func processor() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// ShrinkFrames gives free frames back while total exceeds keep, and reports whether it still does.
func ShrinkFrames(h *umem.Holder, free *umem.FreeList, total *int, keep int) (over bool) {
	*total -= free.ReleaseExcess(*total-keep, h)
	return *total > keep
}
