package roce

import (
	"context"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/internal/bench"
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

// place is two ends of a link.
type place struct {
	server, client end
	pathMTU        int
	// serve starts a program's server and returns when it is ready for a client. The context ends it.
	serve func(ctx context.Context, g *program, w work) (server, error)
}

// end is a host from the view of programs.
type end struct {
	netns   string // the file of its network namespace; empty: that of the process
	card    string
	device  string // RDMA device of unified-rdma-test
	mac     string
	address string
	cpu     int // that its programs run on; -1: any
}

// start starts a program at this end.
func (e end) start(ctx context.Context, command []string) (*bench.Process, error) {
	if e.netns != "" {
		command = append([]string{"nsenter", "--net=" + e.netns, "--"}, command...)
	}
	return bench.StartProcess(ctx, e.cpu, command[0], command[1:]...)
}

// server is a running server.
type server interface {
	// end waits for the server's end, after asking it to end if it would otherwise run on. It returns the
	// processor time in seconds.
	end() (cpu float64, err error)
}

// limit is the longest that a run may take.
const limit = time.Minute

// measure runs a server and a client and returns the client's result. It leaves no process or file
// behind.
func (g *program) measure(ctx context.Context, p place, w work) (s sample, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	server, err := p.serve(ctx, g, w)
	if err == nil {
		if s, err = g.ask(ctx, p, w); err != nil {
			cancel() // a server without a client would wait for one
		}
		cpu, end := server.end()
		s.cpu += cpu
		if err == nil {
			err = end
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", g.name, err)
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
	s.cpu = used.CPU.Seconds()
	return s, err
}

// process is a server on this machine.
type process struct {
	*bench.Process
	endless bool
	used    chan bench.Usage
	ended   chan error
}

// serveHere starts the server of g at p and waits until it listens.
func (g *program) serveHere(ctx context.Context, p place, w work, listens func(protocol string, port int) bool) (server, error) {
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
	return u.CPU.Seconds(), nil
}
