package flows

import (
	"sync"

	"github.com/unifiedd/unifiedd/flows/segment"
)

// places shows how far a flow's output is written and durable to other threads.
type places struct {
	mu               sync.Mutex
	written, durable segment.Position
	total            uint64 // packets written, also behind a gap
}

// publish copies the marks when they have moved. The lock is taken once per
// batch on its way to the disk at most, and held for two copies.
func (p *places) publish(t *track) {
	if p.total == t.packetsWritten && p.written.Number == t.written.Number && p.durable.Number == t.durable.Number {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written, p.durable, p.total = t.written, t.durable, t.packetsWritten
}

// read returns both positions.
func (p *places) read() (written, durable Position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written.Status(), p.durable.Status()
}

// newest is the time of the latest packet written; 0: none.
func (p *places) newest() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written.Newest
}

// packetsDurable is how many packets, the first ones, are durable.
func (p *places) packetsDurable() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.durable.Packets
}

// packetsWritten is how many packets were written, also behind a gap.
func (p *places) packetsWritten() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}
