package disk

import (
	"sync"

	"github.com/unifiedd/unifiedd/flows/segment"
	"github.com/unifiedd/unifiedd/flows/status"
)

// progress publishes the written and durable positions of a writer's output.
type progress struct {
	mu               sync.Mutex
	written, durable segment.Position
	total            uint64 // packets written, including those after a gap
}

// publish copies the positions if they have changed, and reports whether more is durable. It takes the lock
// at most once per batch.
func (p *progress) publish(t *tracker) (durable bool) {
	durable = p.durable.Number != t.durable.Number
	if p.total == t.packetsWritten && p.written.Number == t.written.Number && !durable {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written, p.durable, p.total = t.written, t.durable, t.packetsWritten
	return durable
}

// read returns both positions.
func (p *progress) read() (written, durable status.Position) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written.Status(), p.durable.Status()
}

// newest returns the time of the newest packet written; 0: none.
func (p *progress) newest() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written.Newest
}

// packetsDurable returns the number of durable packets, a prefix.
func (p *progress) packetsDurable() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.durable.Packets
}

// packetsWritten returns the number of packets written, including those after a gap.
func (p *progress) packetsWritten() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}
