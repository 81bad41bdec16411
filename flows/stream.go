package flows

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/internal/pcapng"
	"github.com/unifiedd/unifiedd/umem"
)

// stream writes batches to a writer, such as standard output, one after the
// other. The writer blocks on a goroutine of its own.
type stream struct {
	region *umem.Region
	layout layout
	track  track
	out    chan umem.Frame // to the writer
	back   chan result     // from it
	once   sync.Once
	ended  chan struct{}
}

// result is what became of one write.
type result struct {
	frame umem.Frame
	err   error
}

// openStream writes the head and starts the writer's goroutine.
func openStream(w io.Writer, head []byte, region *umem.Region, l layout) (*stream, error) {
	if _, err := w.Write(head); err != nil {
		return nil, fmt.Errorf("write the capture's head: %w", err)
	}
	s := &stream{region: region, layout: l, out: make(chan umem.Frame, window), back: make(chan result, window), ended: make(chan struct{})}
	go s.write(w)
	return s, nil
}

// write is the goroutine. After an error nothing more is written.
func (s *stream) write(w io.Writer) {
	defer close(s.ended)
	var err error
	for f := range s.out {
		if err == nil {
			_, err = w.Write(s.region.Bytes(f))
		}
		s.back <- result{f, err}
	}
}

func (s *stream) submit(time.Time) (bool, error) {
	if s.layout.size() == 0 {
		return true, nil
	}
	if !s.track.room() {
		return false, nil
	}
	packets, bytes := s.layout.count()
	f := s.layout.seal(pcapng.Batch{})[0]
	s.track.submit(nil, s.track.submitted.end+uint64(f.Len), uint64(packets), bytes)
	s.out <- f // has room for all there can be
	s.layout.reset()
	return true, nil
}

func (s *stream) settle(time.Time) (err error) {
	for {
		select {
		case r := <-s.back:
			s.layout.free([]umem.Frame{r.frame})
			if r.err != nil {
				return fmt.Errorf("write packets: %w", r.err)
			}
			s.track.complete(s.track.written.number + 1)
			s.track.durable = s.track.written
		default:
			return nil
		}
	}
}

func (s *stream) kick() error { return nil }

func (s *stream) close(now time.Time) (bool, error) {
	if ok, err := s.submit(now); !ok || err != nil {
		return false, err
	}
	return s.track.idle(), nil
}

func (s *stream) progress() *track { return &s.track }

func (s *stream) fd() int { return -1 }

// Close ends the goroutine, once the writer returns.
func (s *stream) Close() error {
	s.once.Do(func() { close(s.out) })
	<-s.ended
	return nil
}
