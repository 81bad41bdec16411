package roce

import (
	"context"

	"github.com/unifiedd/unifiedd/internal/bench"
)

// end is a host from the view of programs.
type end struct {
	netns   string // the file of its network namespace; empty: that of the process
	card    string
	mac     string
	address string
	cpu     int // that its programs run on
}

// start starts a program at this end.
func (e end) start(ctx context.Context, command []string) (*bench.Process, error) {
	all := e.in(command)
	return bench.Start(ctx, e.cpu, all[0], all[1:]...)
}

// in is the command inside the end's namespace.
func (e end) in(command []string) []string {
	if e.netns == "" {
		return command
	}
	return append([]string{"nsenter", "--net=" + e.netns, "--"}, command...)
}

// place is two ends of a link.
type place struct {
	server, client end
	// serve starts a program's server and returns when it is ready for a client. The context ends it.
	serve func(ctx context.Context, g *program, w work) (server, error)
}

// server is a running server.
type server interface {
	// end waits for the server's end, after asking it to end if it would otherwise run on. It returns the
	// processor time in seconds.
	end() (cpu float64, err error)
}
