package roce

import (
	"context"
	"fmt"
	"time"
)

// program is one of the compared programs: the command lines of its ends.
type program struct {
	name     string
	op       string // of unified-rdma-test and perftest
	protocol string // tcp or udp, of the port; empty: the client finds the server without a port
	port     int
	mtu      int  // of the link between guests that suits it best
	endless  bool // its server runs until it is interrupted
	server   func(p place, w work) []string
	client   func(p place, w work) []string
	read     func(out []byte, w work) (sample, error) // parses the client's output
}

// limit is the longest that a run may take.
const limit = time.Minute

// measure runs a server and a client and returns the client's result. It leaves no process or file
// behind.
func (g *program) measure(ctx context.Context, p place, w work) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s, err := g.meet(ctx, cancel, p, w)
	if err != nil {
		return s, fmt.Errorf("%s: %w", g.name, err)
	}
	return s, nil
}

func (g *program) meet(ctx context.Context, cancel func(), p place, w work) (sample, error) {
	server, err := p.serve(ctx, g, w)
	if err != nil {
		return sample{}, err
	}
	s, err := g.ask(ctx, p, w)
	if err != nil {
		cancel() // a server without a client would wait for one
	}
	cpu, end := server.end()
	s.cpu += cpu
	if err == nil {
		err = end
	}
	return s, err
}

// ask runs the client.
func (g *program) ask(ctx context.Context, p place, w work) (sample, error) {
	client, err := p.client.start(ctx, g.client(p, w))
	if err != nil {
		return sample{}, err
	}
	out, used, err := client.Wait()
	if err != nil {
		return sample{}, err
	}
	s, err := g.read(out, w)
	s.cpu = used.CPU().Seconds()
	return s, err
}
