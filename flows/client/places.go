package client

import "github.com/unifiedd/unifiedd/umem"

// bufferLayout are where the messages of an Appender lie: a frame or an extent each, or several short ones of a Feeder's in a frame.
type bufferLayout struct {
	count int    // messages
	each  int    // in a frame
	bytes uint64 // from one in a frame to the next
}

const (
	// line is how many bytes a line of the processor's caches has.
	line = 64
	// spares is how many messages more than Depth a Feeder's may be with the device: RoCE in software says of up to 16 together that they have
	// arrived, and that a few more have is known later.
	spares = 24
)

func (c *AppendConfig) bufferLayout() bufferLayout {
	p := bufferLayout{count: c.Depth, each: 1, bytes: frameSize}
	if c.Feed == nil || c.Message > frameSize { // extents are few, so there are no spare ones
		return p
	}
	p.bytes = (max(1, uint64(c.Message)) + line - 1) / line * line
	p.each = int(frameSize / p.bytes)
	p.count += spares
	return p
}

// frames is how many there must be.
func (p *bufferLayout) frames() int { return (p.count + p.each - 1) / p.each }

// at is the place of a message by its number in frames, or extents, of which there are enough.
func (p *bufferLayout) at(frames []umem.Frame, number uint64) umem.Frame {
	n := int(number % uint64(p.count))
	return umem.Frame{Addr: frames[n/p.each].Addr + uint64(n%p.each)*p.bytes}
}
