package roce

import (
	"context"
	"fmt"

	"github.com/unifiedd/unifiedd/internal/bench"
)

// process is a server on this machine.
type process struct {
	*bench.Process
	endless bool
	used    chan bench.Usage
	ended   chan error
}

// serve starts the server of g at p and waits until it listens.
func (g *program) serve(ctx context.Context, p place, w work, listens func(protocol string, port int) bool) (server, error) {
	started, err := p.server.start(ctx, g.server(p, w))
	if err != nil {
		return nil, err
	}
	s := &process{started, g.endless, make(chan bench.Usage, 1), make(chan error, 1)}
	go func() {
		_, u, err := s.Wait()
		s.used <- u
		s.ended <- err
	}()
	ready := func() bool { return g.protocol == "" || listens(g.protocol, g.port) }
	if err := bench.AwaitServer(ctx, ready, s.ended); err != nil {
		s.Kill()
		<-s.ended
		return nil, err
	}
	return s, nil
}

func (s *process) end() (cpu float64, err error) {
	if s.endless {
		s.Interrupt()
	}
	u := <-s.used
	if err := <-s.ended; err != nil {
		return 0, fmt.Errorf("the server: %w", err)
	}
	return u.CPU().Seconds(), nil
}
