package packet

import (
	"fmt"
	"math/bits"
	"net"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/internal/linktype"
	"github.com/unifiedd/unifiedd/internal/netdev"
	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/umem"
)

// Sizes of blocks in bytes. A block is a batch: a write to the disk.
const (
	minBlock = 128 << 10
	maxBlock = 1 << 20
)

// Open opens the socket of a flow. Nothing is received until Begin.
func Open(e *pipeline.Env) (*Source, error) {
	from := e.Flow.From
	d, err := netdev.Find(from.Interface)
	if err != nil {
		return nil, err
	}
	if err := d.Unknown(); err != nil {
		return nil, err
	}
	s := &Source{
		from: from, keep: pcapng.MaxCapLen, link: d.Link, limit: e.Shared.Limit, started: time.Now(), waits: e.Events,
		node: nodeOf(d.Name), batch: pipeline.Batch{Frames: make([]umem.Frame, 1)},
	}
	if n := uint32(e.Flow.To.Snaplen); n != 0 {
		s.keep = min(s.keep, n)
	}
	ins, err := program(from, d.Link, s.keep)
	if err != nil {
		return nil, err
	}
	if s.netlink, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("watch interface %s: open netlink: %w", d.Name, err)
	}
	e.Undo.Add(func() error { s.netlink.Close(); return nil })
	block := blockSize(e.Flow)
	retire := max(1, e.Flow.To.Flush.Milliseconds()/2) // a block is open for up to two periods of the kernel's timer
	s.socket, err = open(socketConfig{
		name: d.Name, index: d.Index, link: d.Link, block: block, blocks: int(uint64(from.Buffer) / block), retire: uint32(retire),
		promiscuous: from.Promiscuous, inboundOnly: from.Mirror == config.MirrorIngress || from.Mirror != config.MirrorEgress && loops(d.Name), filter: ins,
	})
	if err != nil {
		return nil, err
	}
	s.watch.name.Store(&d.Name)
	s.fanouts = e.Shared.Fanouts
	e.Undo.Add(s.leave)
	if err := s.useCardClock(); err != nil {
		return nil, err
	}
	s.drained = 3*time.Duration(retire)*time.Millisecond + time.Second
	s.rewrite = rewriter{ethernet: d.Link == linktype.Ethernet, snap: s.keep, align: 4}
	s.ring = layout.Ring{Memory: s.socket.ring, Block: block, Base: e.Region.Size(), About: make([]layout.Block, s.socket.blocks), Release: s.release}
	return s, nil
}

// loops reports whether an interface is the loopback: each packet that leaves it also arrives. tcpdump has such
// packets once, too.
func loops(name string) bool {
	i, err := net.InterfaceByName(name)
	return err == nil && i.Flags&net.FlagLoopback != 0
}

// nodeOf returns the NUMA node of the card of an interface.
func nodeOf(name string) int {
	device, err := filepath.EvalSymlinks(filepath.Join("/sys/class/net", name, "device"))
	if err != nil {
		return numa.Unknown
	}
	return numa.OfPCI(filepath.Base(device))
}

// blockSize returns the bytes of a block: the largest power of two of which the buffer has sixteen and a
// segment four.
func blockSize(f config.Flow) uint64 {
	most := min(maxBlock, uint64(f.From.Buffer)/16)
	if !f.To.Exact && f.To.File != "" {
		most = min(most, uint64(f.To.Segment.Size)/4)
	}
	if size := uint64(f.To.Rotate.Size); size > 0 {
		most = min(most, max(size, 1<<20)/4)
	}
	return max(minBlock, uint64(1)<<(bits.Len64(most)-1))
}

// program returns the filter of a socket. It returns keep for packets that the flow takes.
func program(from config.From, of linktype.Type, keep uint32) ([]unix.SockFilter, error) {
	expr, err := config.ParseFilter(from.Filter, of)
	if err != nil {
		return nil, err
	}
	if expr == nil {
		expr = &filter.Expr{}
	}
	ins, err := expr.Socket(keep)
	if err != nil {
		return nil, err
	}
	if from.Mirror == config.MirrorEgress {
		ins = append(outboundOnly, ins...)
	}
	return ins, nil
}

// outboundOnly rejects packets that the host does not send: it loads the type of the packet (SKF_AD_PKTTYPE).
var outboundOnly = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 0xfffff000 + 4},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.PACKET_OUTGOING, Jt: 1},
	{Code: unix.BPF_RET | unix.BPF_K},
}

// Interfaces describes the interface of a capture. If the card stamps packets, there is a second one for those.
func (s *Source) Interfaces() []pcapng.Interface {
	one := pcapng.Interface{
		Name: s.from.Interface, Filter: pcapng.Shortened(s.from.Wanted()), LinkType: uint16(s.link),
		Description: s.from.Interface + ", packet socket", Comment: s.from.CommentOf(0),
	}
	if !s.socket.clock.on {
		return []pcapng.Interface{one}
	}
	card := one
	card.Description += ", the card's clock"
	card.CardClock = s.socket.describeClock()
	return []pcapng.Interface{one, card}
}
