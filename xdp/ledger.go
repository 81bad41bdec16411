package xdp

import (
	"fmt"

	"github.com/unifiedd/unifiedd/bpf"
)

// Ledger says what became of every packet an interface's program saw.
type Ledger struct {
	Program  bpf.Counters // the program's verdicts
	Received uint64       // packets given by Recv
	Waiting  uint64       // frames in rx rings, not received yet
	RingFull uint64       // packets lost: rx ring full
	NoFrames uint64       // packets lost: fill ring empty
	TooLong  uint64       // packets lost: longer than a frame
}

// Ledger adds up the counters of the program and of all ports. While packets
// flow the parts are of slightly different moments. After Close it is what was
// last.
func (i *Interface) Ledger() (Ledger, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed.Load() {
		return i.final, nil
	}
	return i.ledger()
}

func (i *Interface) ledger() (l Ledger, err error) {
	if i.program != nil {
		if l.Program, err = i.program.Counters(); err != nil {
			return l, fmt.Errorf("ledger of %s: %w", i.Name(), err)
		}
	}
	for _, p := range i.ports {
		s, err := p.Stats()
		if err != nil {
			return l, fmt.Errorf("ledger of %s: %w", i.Name(), err)
		}
		l.Received += s.Received.Packets
		l.Waiting += s.Waiting
	}
	return l, nil
}

// keepLedger takes the last ledger and closes the door.
func (i *Interface) keepLedger() (err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.final, err = i.ledger()
	i.closed.Store(true)
	return err
}
