package afxdp

import (
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/bpf/mirror"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/pipeline"
	"github.com/unifiedd/unifiedd/flows/status"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/xdp"
)

// directionsOf maps each setting to directions.
var directionsOf = map[config.Mirror][]mirror.Direction{
	config.MirrorBoth:    {mirror.Ingress, mirror.Egress},
	config.MirrorIngress: {mirror.Ingress},
	config.MirrorEgress:  {mirror.Egress},
}

// openMirror opens the mirror of a flow that receives copies. It sets in x the interface where they
// arrive.
func (s *Source) openMirror(e *pipeline.Env, x *xdp.Config) (err error) {
	from := e.Flow.From
	if from.Mirror == "" {
		return nil
	}
	s.mirror, err = mirror.Open(mirror.Config{Interface: from.Interface, Directions: directionsOf[from.Mirror], Promiscuous: from.Promiscuous})
	if err != nil {
		return err
	}
	e.Undo.Add(s.mirror.Close)
	x.Interface, x.Promiscuous = s.mirror.Interface(), false
	for _, d := range s.mirror.Directions() {
		x.Queues = append(x.Queues, uint32(d))
	}
	return nil
}

// describeQueue returns the interface whose packets arrive at a queue, and a description.
func (s *Source) describeQueue(iface string, queue uint32) (name, description string) {
	if s.mirror == nil {
		return iface, fmt.Sprintf("%s queue %d", iface, queue)
	}
	return iface, fmt.Sprintf("%s %s, copies", iface, mirror.Direction(queue))
}

// Directions returns the directions of mirrored packets, by interface number in a capture. It
// returns nil without a mirror.
func (s *Source) Directions() []pcapng.Direction {
	if s.mirror == nil {
		return nil
	}
	var all []pcapng.Direction
	for i := range s.queues {
		d := pcapng.Inbound
		if mirror.Direction(s.queues[i].port.Queue()) == mirror.Egress {
			d = pcapng.Outbound
		}
		for range clocks(s.net.Granted()) {
			all = append(all, d)
		}
	}
	return all
}

// mirrored returns the names of the mirrored directions.
func (s *Source) mirrored() (words []string) {
	for _, d := range s.mirror.Directions() {
		words = append(words, d.String())
	}
	return words
}

// checkInterfaces returns the errors of xdp.Interface.Check. It also checks a mirrored interface.
func (s *Source) checkInterfaces() error {
	if s.mirror != nil {
		switch name, up, err := s.mirror.Check(); {
		case err != nil:
			return err
		case !up:
			return fmt.Errorf("check %s: %w (ip link set %s up)", name, xdp.ErrInterfaceDown, name)
		}
	}
	return s.net.Check()
}

// stopMirror ends the mirroring. If the mirrored interface is gone, it returns no error.
func (s *Source) stopMirror() error {
	if s.mirror == nil {
		return nil
	}
	return s.mirror.Stop()
}

// observeMirror adds the copies that were lost before they reached the interface that captures
// them.
func (s *Source) observeMirror(to *status.Flow) error {
	if s.mirror == nil {
		return nil
	}
	to.From, _, _ = s.mirror.Check()
	to.Mirrors = s.mirrored()
	c, err := s.mirror.Counters()
	if err != nil && !errors.Is(err, mirror.ErrGone) {
		return err
	}
	to.Dropped["mirror_full"], to.Dropped["mirror_failed"] = c.Full, c.Failed
	to.Offered += c.Full + c.Failed
	return nil
}
