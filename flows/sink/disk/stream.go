package disk

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/flows/layout"
	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/umem"
)

// stream is the output that writes batches to an io.Writer, such as standard output. It calls the
// io.Writer on a goroutine, because writes may block.
type stream struct {
	region *umem.Region
	ring   *layout.Ring // of a packet socket; nil: all frames are the region's
	layout layout.Layout
	track  tracker
	out    chan umem.Frame // to the writer
	back   chan result     // from it
	once   sync.Once
	ended  chan struct{}
}

// result is the outcome of one write.
type result struct {
	frame umem.Frame
	err   error
}

// openStream writes the head of the capture and starts the goroutine.
func openStream(w io.Writer, head []byte, region *umem.Region, ring *layout.Ring, l layout.Layout) (*stream, error) {
	if _, err := w.Write(head); err != nil {
		return nil, fmt.Errorf("write the capture's head: %w", err)
	}
	s := &stream{region: region, ring: ring, layout: l, out: make(chan umem.Frame, queueDepth), back: make(chan result, queueDepth), ended: make(chan struct{})}
	go s.write(w)
	return s, nil
}

// write runs on the goroutine. After an error it writes nothing more.
func (p *stream) write(w io.Writer) {
	defer close(p.ended)
	var err error
	for f := range p.out {
		if err == nil {
			_, err = w.Write(p.bytes(f))
		}
		p.back <- result{f, err}
	}
}

// bytes returns the bytes of a frame.
func (p *stream) bytes(f umem.Frame) []byte {
	if p.ring != nil && f.Addr >= p.ring.Base {
		return p.ring.Of(f)
	}
	return p.region.Bytes(f)
}

func (p *stream) submit(time.Time, time.Time) (bool, error) {
	if p.layout.Size() == 0 {
		return true, nil
	}
	if !p.track.room() {
		return false, nil
	}
	packets, bytes := p.layout.Count()
	f := p.layout.Seal(pcapng.Batch{})[0]
	p.track.submit(nil, p.track.submitted.End+uint64(f.Len), uint64(packets), bytes)
	p.out <- f // never blocks: the channel has space for all batches
	p.layout.Reset()
	return true, nil
}

func (p *stream) settle(time.Time) (err error) {
	for {
		select {
		case r := <-p.back:
			p.layout.Free([]umem.Frame{r.frame})
			if r.err != nil {
				return fmt.Errorf("write packets: %w", r.err)
			}
			p.track.complete(p.track.written.Number + 1)
			p.track.durable = p.track.written
		default:
			return nil
		}
	}
}

func (p *stream) kick() error { return nil }

// due says that a write under way ends without a notice.
func (p *stream) due(now, until time.Time) time.Time {
	if p.track.idle() {
		return until
	}
	return now.Add(time.Millisecond)
}

func (p *stream) takesNotes() bool { return true }

func (p *stream) close(now, begun time.Time) (bool, error) {
	if ok, err := p.submit(now, begun); !ok || err != nil {
		return false, err
	}
	return p.track.idle(), nil
}

func (p *stream) tracker() *tracker { return &p.track }

func (p *stream) setLayout(l layout.Layout) { p.layout = l }

func (p *stream) fd() int { return -1 }

// Close ends the goroutine when the io.Writer returns.
func (p *stream) Close() error {
	p.once.Do(func() { close(p.out) })
	<-p.ended
	return nil
}
