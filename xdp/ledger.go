package xdp

import (
	"fmt"

	"github.com/unifiedd/unifiedd/bpf"
)

// Ledger says what became of every packet that arrived at an interface since it
// was opened: so many were Offered, and each has one Reason. What the sender's end
// dropped, such as the other half of a veth pair, never arrived and is in that
// end's own counters.
type Ledger struct {
	// Offered is what the device lost and what the program saw, by the device's
	// and the program's own count.
	Offered uint64
	by      [reasons]uint64
}

// Of is the number of packets of one reason.
func (l *Ledger) Of(r Reason) uint64 { return l.by[r] }

// Lost is the number of packets nobody got.
func (l *Ledger) Lost() (n uint64) {
	for _, r := range Reasons() {
		if r.IsLost() {
			n += l.by[r]
		}
	}
	return n
}

// Missing is Offered less the packets of every reason: zero at rest. While
// packets flow the counters are of slightly different moments, and Missing is some
// packets, of either sign.
func (l *Ledger) Missing() int64 {
	n := l.Offered
	for _, k := range l.by {
		n -= k
	}
	return int64(n)
}

// Ledger adds up the counters of the device, the program and the ports. After
// Close it is what was last. It may be called from any goroutine.
func (i *Interface) Ledger() (Ledger, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return i.final, nil
	}
	return i.ledger()
}

func (i *Interface) ledger() (l Ledger, err error) {
	for _, p := range i.ports {
		s, err := p.Stats()
		if err != nil {
			return l, fmt.Errorf("ledger: %w", err)
		}
		l.addPort(&s, i.granted)
	}
	refused := l.by[LostRingFull] + l.by[LostNoFrames] + l.by[LostTooLong]
	if err := i.addProgram(&l, refused); err != nil {
		return l, fmt.Errorf("ledger of %s: %w", i.Name(), err)
	}
	if err := i.addDevice(&l); err != nil {
		return l, fmt.Errorf("ledger of %s: %w", i.Name(), err)
	}
	return l, nil
}

func (l *Ledger) addPort(s *Stats, g Granted) {
	ringFull, noFrames, tooLong := s.lost(g)
	l.by[Received] += s.Received.Packets
	l.by[Waiting] += s.Waiting
	l.by[LostRingFull] += ringFull
	l.by[LostNoFrames] += noFrames
	l.by[LostTooLong] += tooLong
}

// addProgram adds the program's verdicts. Without a program of ours nobody counts
// what was offered to the sockets but they themselves.
func (i *Interface) addProgram(l *Ledger, refused uint64) error {
	if i.program == nil {
		l.Offered += l.by[Received] + l.by[Waiting] + refused
		return nil
	}
	all, err := i.seatCounters()
	if err != nil {
		return err
	}
	for seat := range all {
		c := all[seat].Since(i.since[seat])
		l.Offered += c.Total().Packets
		l.by[KernelNoMatch] += c[bpf.NoMatch].Packets
		if seat != i.seat {
			l.by[OtherFlow] += c.Total().Packets - c[bpf.NoMatch].Packets
			continue
		}
		l.by[KernelTooLong] = c[bpf.TooLong].Packets
		l.by[KernelNoSocket] = c[bpf.NoSocket].Packets
		l.by[KernelUnclear] = c[bpf.Unclear].Packets
		l.by[FilterDropped] = c[bpf.Dropped].Packets
	}
	return nil
}

// addDevice adds what was lost before the program. The driver's counter includes
// what the sockets refused. An interface that is gone lost what was last known.
func (i *Interface) addDevice(l *Ledger) error {
	if s, err := i.device.look(); err == nil {
		i.lost = s.lost.since(i.before)
	}
	i.company.mu.Lock()
	refused, err := i.company.refused()
	i.company.mu.Unlock()
	if err != nil {
		return err
	}
	refused -= min(i.refusedBefore, refused)
	l.by[LostMissed] = i.lost.missed
	l.by[LostDamaged] = i.lost.errors
	l.by[LostDriver] = i.lost.driver - min(refused, i.lost.driver)
	l.Offered += l.by[LostMissed] + l.by[LostDamaged] + l.by[LostDriver]
	return nil
}

// Unsent is how many packets the device dropped or could not send since the interface was opened, whoever they were from: a
// socket hears nothing of that, and counts them as sent. After Close it is what it was then. An interface that is gone is an error.
func (i *Interface) Unsent() (uint64, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return i.unsent, nil
	}
	return i.countUnsent()
}

func (i *Interface) countUnsent() (uint64, error) {
	s, err := i.device.look()
	if err != nil {
		return 0, fmt.Errorf("count what %s did not send: %w", i.Name(), err)
	}
	return s.unsent - min(i.unsentBefore, s.unsent), nil
}
