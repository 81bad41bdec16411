package flows

import (
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/bpf/mirror"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/xdp"
)

// directionsOf are the directions that a setting names.
var directionsOf = map[config.Mirror][]mirror.Direction{
	config.MirrorBoth:    {mirror.Ingress, mirror.Egress},
	config.MirrorIngress: {mirror.Ingress},
	config.MirrorEgress:  {mirror.Egress},
}

// openMirror has the flow take copies of packets, where that is wanted, and puts into x from where.
func (n *intake) openMirror(o *opening, x *xdp.Config) (err error) {
	from := o.flow.From
	if from.Mirror == "" {
		return nil
	}
	n.mirror, err = mirror.Open(mirror.Config{Interface: from.Interface, Directions: directionsOf[from.Mirror], Promiscuous: from.Promiscuous})
	if err != nil {
		return err
	}
	o.undo.add(n.mirror.Close)
	x.Interface, x.Promiscuous = n.mirror.Interface(), false
	for _, d := range n.mirror.Directions() {
		x.Queues = append(x.Queues, uint32(d))
	}
	return nil
}

// captured is of which interface the packets of a queue are, and what else there is to say of them.
func (n *intake) captured(iface string, queue uint32) (name, about string) {
	if n.mirror == nil {
		return iface, fmt.Sprintf("%s queue %d", iface, queue)
	}
	return iface, fmt.Sprintf("%s %s, copies", iface, mirror.Direction(queue))
}

// mirrored are the directions of copies, by source; nil: packets are no copies.
func (n *intake) mirrored() []pcapng.Direction {
	if n.mirror == nil {
		return nil
	}
	var all []pcapng.Direction
	for _, s := range n.sources {
		d := pcapng.Inbound
		if mirror.Direction(s.port.Queue()) == mirror.Egress {
			d = pcapng.Outbound
		}
		for range clocks(n.net.Granted()) {
			all = append(all, d)
		}
	}
	return all
}

// mirrors are the directions that copies are taken of, for people.
func (n *intake) mirrors() (words []string) {
	for _, d := range n.mirror.Directions() {
		words = append(words, d.String())
	}
	return words
}

// checkNet says how the interface is: errors are those of xdp.Interface.Check, also where another is
// mirrored to it.
func (n *intake) checkNet() error {
	if n.mirror != nil {
		switch name, up, err := n.mirror.Check(); {
		case err != nil:
			return err
		case !up:
			return fmt.Errorf("check %s: %w (ip link set %s up)", name, xdp.ErrInterfaceDown, name)
		}
	}
	return n.net.Check()
}

// haltMirror ends the copying. An interface that is gone is no longer copied from.
func (n *intake) haltMirror() error {
	if n.mirror == nil {
		return nil
	}
	return n.mirror.Stop()
}

// observeMirror adds the copies that were lost before they reached the interface where they are captured.
func (n *intake) observeMirror(s *FlowStatus) error {
	if n.mirror == nil {
		return nil
	}
	s.From, _, _ = n.mirror.Check()
	s.Mirrors = n.mirrors()
	c, err := n.mirror.Counters()
	if err != nil && !errors.Is(err, mirror.ErrGone) {
		return err
	}
	s.Dropped["mirror_full"], s.Dropped["mirror_failed"] = c.Full, c.Failed
	s.Offered += c.Full + c.Failed
	return nil
}
