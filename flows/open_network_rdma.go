package flows

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/unifiedd/unifiedd/internal/numa"
	"github.com/unifiedd/unifiedd/umem"
)

// ethernetHeader is the most bytes in front of what an interface's MTU counts: an Ethernet
// header and two VLAN tags.
const ethernetHeader = 14 + 2*4

// openNetworkRDMA opens both ends of a flow and fills the rings. Nothing moves until a
// worker polls it and it has begun.
func openNetworkRDMA(o *opening) (*networkRDMA, error) {
	n := &networkRDMA{from: o.flow.From, book: o.book}
	n.region = o.region
	if err := n.openStages(o.flow.Stages); err != nil {
		return nil, err
	}
	n.spare, n.limit = &umem.FreeList{}, o.shared.limit
	if err := n.openNet(o); err != nil {
		return nil, err
	}
	link, err := netlink.LinkByName(o.flow.From.Interface)
	if err != nil {
		return nil, fmt.Errorf("ask for the MTU of %s: %w", o.flow.From.Interface, err)
	}
	longest := uint32(link.Attrs().MTU + ethernetHeader)
	each := o.region.FrameSize() - umem.PacketHeadroom // what a frame holds of a packet
	if err := n.openOutbox(o, longest, int((longest+each-1)/each), o.flow.To.Queue); err != nil {
		return nil, err
	}
	queues := len(o.flow.To.Peers) * o.flow.To.Queue
	if err := n.fill(o, 2*burst, min(queues, 4*n.ringFrames())); err != nil {
		return nil, err
	}
	n.ends.from, n.ends.to = n.net.Node(), numa.Unknown
	n.Watermarks = o.flow.Watermarks
	o.complete(&n.common)
	return n, nil
}
