package config

import (
	"fmt"
	"strings"
)

// Needs is the least part of the region that a flow takes. It does not include the rings of
// interfaces and the memory of RDMA devices.
type Needs struct {
	Frames, Extents int
	// Own is the number of frames for the flow's own messages, such as headers and acknowledgements.
	// They are not part of the flow's share.
	Own int
	// Exact says that the flow takes exactly this much. Other flows share the rest.
	Exact bool
}

// Numbers that flows need in addition to messages and blocks. The packages of the flows have the
// same numbers, and a test compares them.
const (
	perFlow      = 2   // extents of a flow to storage: the layout fills one while the disk writes another
	perReplay    = 5   // extents of a replay: the longest packet's block spans three of the smallest
	logFrames    = 128 // frames of messages that a log has at once
	slotFrames   = 640 // in the slot layout
	logExtents   = 4   // messages in extents that a log has at once
	slotExtents  = 8   // in the slot layout
	relayed      = 2   // messages that a relay has at once
	copied       = 256 // frames for copies of messages of an attached program
	defaultShare = 16  // extents for flows without exact needs
	blockReads   = 64  // at the disk at once
	blockShared  = 32  // extents that belong to no client
	blockFrames  = 16  // of one request, if blocks are cached
	grantBytes   = 256 // bytes of the longest message of a peer
	control      = 64  // bytes of a control message
	completion   = 16  // bytes of an NVMe completion
)

// Needs returns what the flow needs of the region. It is zero where a setting that it depends on
// is wrong.
func (f *Flow) Needs(r *Region) Needs {
	kind := f.Kind()
	if kind == KindChannelRDMA || kind == KindRDMAChannel { // acknowledgements of each peer, over each path
		n := Needs{Exact: true, Frames: max(1, min(len(f.To.Peers), maxPeers))}
		for _, p := range f.To.Peers[:min(len(f.To.Peers), maxPeers)] {
			n.Frames += min(len(p.Paths), maxPaths-1)
		}
		return n
	}
	switch window, clients := max(f.From.Window, f.To.Window), max(f.From.Clients, f.To.Clients); {
	case kind == KindNetworkStorage, kind == KindNullStorage, kind == KindStorageNetwork, kind == KindNetworkRDMA, kind == KindNullRDMA, kind == KindNetworkAttach, kind == KindNetworkOrder:
	case !within(window, 1, maxWindow), !within(clients, 1, maxClients), f.To.Transfer > maxTransfer, f.To.Cache > maxRegion, f.From.Message > maxExtent:
		return Needs{}
	}
	switch kind {
	case KindNetworkStorage, KindNullStorage:
		return Needs{Extents: perFlow}
	case KindStorageNetwork:
		return Needs{Extents: perReplay}
	case KindRDMAStorage:
		frames, extents := logFrames, logExtents
		if f.To.Layout == LayoutSlot {
			frames, extents = slotFrames, slotExtents
		}
		n := f.From.needs(r, frames, extents)
		n.Extents += perFlow
		return n
	case KindRDMANull, KindRDMAState:
		return f.From.needs(r, relayed, relayed)
	case KindRDMAAttach: // messages land in the program's memory
		n := f.From.needs(r, relayed, relayed)
		return Needs{Frames: n.Own, Own: n.Own}
	case KindNetworkAttach:
		return Needs{Exact: f.To.Place == PlaceHere} // packets land in the program's memory
	case KindStorageAttach: // blocks land in the program's memory
		return Needs{Exact: true}
	case KindStorageState: // records are read into memory of their own
		return Needs{Exact: true}
	case KindAttachOrder:
		return Needs{Exact: true, Frames: f.To.segments()}
	case KindNetworkOrder:
		return Needs{Frames: f.To.segments(), Own: f.To.segments()}
	case KindAttachStorage:
		return Needs{Extents: perFlow}
	case KindAttachRDMA:
		peers := f.To.headers(r)
		if f.From.Trusted { // peers get messages from where they lie in the program's memory
			return Needs{Frames: peers, Own: peers}
		}
		return Needs{Frames: peers + copied, Own: peers}
	case KindRDMARDMA:
		n, peers := f.From.needs(r, relayed, relayed), f.To.headers(r)
		return Needs{Frames: n.Frames + peers, Extents: n.Extents, Own: n.Own + peers}
	case KindNetworkRDMA, KindNullRDMA:
		peers := f.To.headers(r)
		return Needs{Frames: peers, Own: peers}
	case KindStorageRDMA:
		return f.To.blocks(r)
	case KindStorageNVMe:
		return f.To.hosts(r)
	}
	return Needs{}
}

// segments returns the frames that a flow needs for segments of orders.
func (t *To) segments() int {
	if t.Order == nil {
		return MaxRing
	}
	return min(MaxRing, max(0, t.Order.Ring))
}

// needs returns the needs of clients' messages: each client's window, and what the rest of the flow
// holds. For messages in extents it counts one extent per client instead of a window.
func (f *From) needs(r *Region, frames, extents int) Needs {
	clients := f.Clients * (1 + len(f.Paths)) // each may come over each device
	n := Needs{Own: clients}                  // acknowledgements
	if f.Method == MethodWrite {
		n.Own += f.Window * clients // control messages about writes
	}
	n.Frames = n.Own
	if !r.InFrame(f.Message) {
		n.Extents = clients + extents
		return n
	}
	n.Frames += f.Window*clients + frames
	return n
}

// headers returns the frames that senders to peers need: one header for each queued message, and
// space for messages from the peers.
func (t *To) headers(r *Region) int {
	if len(t.Peers) > maxPeers || !within(t.Queue, 1, maxPeerWait) {
		return 0
	}
	said := pieces(Size(min(max(2*t.Queue+2, 32), 64)), max(1, uint64(r.Frame)/grantBytes))
	frames := 0
	for i := range t.Peers {
		frames += pieces(Size(t.Queue*control), uint64(r.Frame)) + said*t.Peers[i].active()
	}
	return frames
}

// blocks returns the needs of a block server on a disk whose blocks are not larger than a frame.
func (t *To) blocks(r *Region) Needs {
	frame, most := uint64(r.Frame), 1
	if t.Cache > 0 {
		most = min(pieces(t.Transfer, frame)+1, blockFrames)
	}
	n := Needs{Exact: true, Frames: most*t.Clients + max(blockReads, most)}
	switch each := pieces(t.Transfer, uint64(r.Extent)); {
	case uint64(t.Transfer) > frame:
		n.Extents = each*t.Clients + max(blockShared, each) + int(uint64(t.Cache)/2/uint64(r.Extent))
		n.Frames += int(uint64(t.Cache) / 2 / frame)
	default:
		n.Frames += int(uint64(t.Cache) / frame)
	}
	n.Frames += pieces(Size(t.Clients*(3*t.Window+1)*control), frame)
	return n
}

// hosts returns the needs of an NVMe target.
func (t *To) hosts(r *Region) Needs {
	slots, frame := t.Clients*t.Window, uint64(r.Frame)
	return Needs{
		Exact: true, Extents: t.Clients + t.Clients/2,
		Frames: slots + 4*t.Clients + pieces(Size(slots*control), frame) + pieces(Size(2*slots*completion), frame),
	}
}

func pieces(n Size, each uint64) int { return int((uint64(n) + each - 1) / each) }

// needs returns the sum over all flows, and the part of that sum that is exact.
func (c *Config) needs() (all, exact Needs) {
	for i := range c.Flows {
		n := c.Flows[i].Needs(&c.Region)
		all.Frames, all.Extents = all.Frames+n.Frames, all.Extents+n.Extents
		exact.Frames += n.Own
		if n.Exact {
			exact.Frames, exact.Extents = exact.Frames+n.Frames, exact.Extents+n.Extents
		}
	}
	return all, exact
}

// Share returns what a flow may have of the frames and extents of a region: what it needs, and an equal part of what the
// needs of all flows leave. Extents are for flows that need some. The configuration does not determine the rings of
// interfaces; they use what flows leave of their shares. Rings are longer the more frames there are, so a flow gets no more
// beyond its needs than if all flows had the same: a reload finds frames for others.
func (c *Config) Share(f *Flow, frames, extents int) (ownFrames, ownExtents int) {
	all, _ := c.needs()
	framesOf, extentsOf := 0, 0
	for i := range c.Flows {
		if n := c.Flows[i].Needs(&c.Region); !n.Exact {
			framesOf++
			extentsOf += min(n.Extents, 1)
		}
	}
	n := f.Needs(&c.Region)
	ownFrames = n.Frames - n.Own + min(frames/max(1, len(c.Flows)), max(0, frames-all.Frames)/max(1, framesOf))
	if n.Extents > 0 {
		ownExtents = n.Extents + max(0, extents-all.Extents)/max(1, extentsOf)
	}
	return ownFrames, ownExtents
}

// defaultExtents returns the default number of extents: more than the flows need, if the region has
// space for them.
func (c *Config) defaultExtents() int {
	r := &c.Region
	if r.Frame <= 0 || r.Extent == 0 {
		return defaultShare
	}
	all, exact := c.needs()
	half := int(min(r.Size/2/r.Extent, maxRegion))
	return max(1, all.Extents, min(exact.Extents+defaultShare, half))
}

// needed checks that the region is large enough for the flows.
func (v *validator) needed() {
	r := &v.Region
	all, _ := v.needs()
	if r.Extents < all.Extents {
		v.refuse(v.first("region.extents", "region.size", "flows"), wrong("raise region.extents, and region.size, of which they are half at most; or lower clients, message, transfer or cache",
			"%d extents are too few: the flows need %d%s", r.Extents, all.Extents, v.each(func(n Needs) int { return n.Extents })))
		return
	}
	if most := int(r.Size / 2 / r.Extent); r.Extents > most {
		v.refuse(v.first("region.extents", "region.extent", "region.size"), wrong("raise region.size, or lower region.extents if more than the flows need",
			"%d extents of %s do not fit half of a region of %s; the flows need %d%s", r.Extents, r.Extent, r.Size, all.Extents, v.each(func(n Needs) int { return n.Extents })))
		return
	}
	if have := int(uint64(r.Size)/uint64(r.Frame)) - int(uint64(r.Extents)*uint64(r.Extent)/uint64(r.Frame)); have < all.Frames {
		v.refuse(v.first("region.size", "region", "flows"), wrong("raise region.size, or lower clients, window or cache",
			"%d frames beside the extents are too few: the flows need %d%s", have, all.Frames, v.each(func(n Needs) int { return n.Frames })))
	}
}

// each lists the first few flows that need something, with the number that each one needs.
func (v *validator) each(of func(Needs) int) string {
	const most = 8
	var all []string
	for i := range v.Flows {
		if n := of(v.Flows[i].Needs(&v.Region)); n > 0 {
			all = append(all, fmt.Sprintf("%s %d", v.Flows[i].Name, n))
		}
	}
	if len(all) > most {
		all = append(all[:most], "…")
	}
	if all == nil {
		return ""
	}
	return " (" + strings.Join(all, ", ") + ")"
}
