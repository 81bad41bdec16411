package packet

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// ErrInterfaceDown is matched while a flow waits for its interface to come up.
var ErrInterfaceDown = errors.New("the interface is down: it receives nothing")

// ErrInterfaceGone is matched when the interface of a flow has been removed.
var ErrInterfaceGone = errors.New("the interface is gone: it was removed, or moved to another network namespace")

// watch is what Check knows of the interface and of drops.
type watch struct {
	name    atomic.Pointer[string] // of the interface, which may be renamed
	dropped uint64                 // packets dropped at the last check
	last    atomic.Pointer[status.Drops]
}

func (s *Source) Check(now time.Time) (waits, ends error) {
	if err := s.fault.Load(); err != nil {
		return nil, *err
	}
	s.checkDrops(now)
	link, err := s.netlink.LinkByIndex(s.socket.index)
	switch {
	case errors.As(err, new(netlink.LinkNotFoundError)), errors.Is(err, unix.ENODEV):
		return nil, fmt.Errorf("check %s: %w", *s.watch.name.Load(), ErrInterfaceGone)
	case err != nil:
		return nil, nil // netlink is busy: ask again in a second
	}
	name := link.Attrs().Name
	s.watch.name.Store(&name)
	if link.Attrs().Flags&net.FlagUp == 0 {
		return fmt.Errorf("check %s: %w (ip link set %s up)", name, ErrInterfaceDown, name), nil
	}
	return nil, nil
}

// checkDrops notes when the kernel dropped packets, to a second.
func (s *Source) checkDrops(now time.Time) {
	_, dropped, _, err := s.socket.statistics()
	if err != nil || dropped == s.watch.dropped {
		return
	}
	span := status.Drops{Since: now.Add(-time.Second), Until: now, Packets: dropped - s.watch.dropped}
	if last := s.watch.last.Load(); last != nil && now.Sub(last.Until) < 2*time.Second {
		span.Since, span.Packets = last.Since, span.Packets+last.Packets
	}
	s.watch.dropped = dropped
	s.watch.last.Store(&span)
}

func (s *Source) Announce() []any {
	return []any{"engine", string(config.EnginePacket), "buffer", len(s.ring.Memory), "blocks", len(s.ring.About), "block", s.ring.Block, "mirrors", s.directions()}
}

// directions returns the names of the directions that the flow has copies of.
func (s *Source) directions() []string {
	switch s.from.Mirror {
	case config.MirrorIngress:
		return []string{"ingress"}
	case config.MirrorEgress:
		return []string{"egress"}
	}
	return []string{"ingress", "egress"}
}

func (s *Source) Observe(to *status.Flow) error {
	to.From, to.Mirrors = *s.watch.name.Load(), s.directions()
	to.Engine, to.WhyEngine, to.Fanout = string(config.EnginePacket), s.why, s.from.Fanout
	to.WhyNot = "the kernel copies packets to a packet socket"
	clock := &s.socket.clock
	to.CardClock, to.NoCardClock, to.CardStamped = clock.on, clock.why, s.stamped.Load()
	if clock.on && clock.ptp >= 0 {
		to.PTPClock = &clock.ptp
	}
	to.Packets, to.Bytes = s.packets.Load(), s.bytes.Load()
	held := s.held.Load()
	packets, dropped, freezes, err := s.socket.statistics()
	to.Buffer = &status.Buffer{
		Bytes: uint64(len(s.ring.Memory)), Blocks: len(s.ring.About), Held: int(held), Received: s.blocks.Load(), Full: freezes, Pinned: s.pinned, Last: s.watch.last.Load(),
	}
	to.Offered = packets
	to.Dropped["buffer_full"] = dropped
	to.Dropped["beyond_count"] = s.beyond.Load()
	to.Dropped["not_received"], to.Dropped["write_failed"] = 0, 0 // CountLost sets them
	to.Waiting = packets - min(packets, dropped+to.Packets)
	to.KernelBytes["socket"] = to.Bytes
	to.CopiedBytes["moved"] = s.moved.Load()
	return err
}

// CountLost implements pipeline.Source. The packets still in the ring are lost.
func (s *Source) CountLost(to *status.Flow) {
	to.Dropped["not_received"], to.Waiting = to.Waiting, 0
}

// Statistics returns an Interface Statistics Block.
func (s *Source) Statistics() []pcapng.Statistics {
	now := uint64(time.Now().UnixNano())
	received := s.packets.Load()
	packets, dropped, _, err := s.socket.statistics()
	if err != nil {
		return nil
	}
	return []pcapng.Statistics{{
		Time: now, Start: uint64(s.started.UnixNano()), End: now, Received: pcapng.Unknown, Dropped: pcapng.Unknown,
		Accepted: packets, OSDropped: dropped, Delivered: received,
	}}
}
