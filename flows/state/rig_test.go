package state

import (
	"log/slog"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/client"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/roce/rocetest"
	"github.com/unifiedd/unifiedd/umem"
)

// rig is two hosts. One has states, which the other may read over RoCE in software.
type rig struct {
	*testenv.Pair
	t       *testing.T
	region  *umem.Region
	at      *stream.Endpoint
	set     *Set
	servers []*Server
	near    *client.Client
}

// newRig opens the states, each with a server at a port of its own.
func newRig(t *testing.T, clients int, permit func(connect.Peer, protocol.Hello) error, states ...Config) *rig {
	t.Helper()
	testenv.Root(t)
	testenv.Leaks(t)
	g := &rig{Pair: testenv.NewPair(t, testenv.PairOptions{}), t: t}
	c := umem.Config{Size: 16 << 20, Pages: umem.Ordinary, FrameSize: 4096}
	for i := range states {
		c.Slices = append(c.Slices, states[i].Slice())
	}
	var err error
	region, d := rocetest.At(&g.B).Start(t, c)
	g.region = region
	g.at, err = stream.OpenEndpoint(d, region)
	g.must(err)
	g.close(g.at.Close)
	g.set, err = Open(g.region, states)
	g.must(err)
	g.close(g.set.Close)
	for _, one := range g.set.All() {
		g.B.Do(t, func() {
			s, err := Serve(ServerConfig{State: one, Endpoint: g.at, Listen: g.B.IP.String() + ":0", Clients: clients, Permit: permit, Log: slog.Default()})
			g.must(err)
			g.close(s.Close)
			g.servers = append(g.servers, s)
		})
	}
	g.A.Do(t, func() {
		g.near, err = client.Open(client.Config{Device: "roce:" + g.A.Ifname, Pages: umem.Ordinary, Memory: 32 << 20, Extent: 1 << 21, Extents: 2})
		g.must(err)
	})
	g.close(g.near.Close)
	return g
}

func (g *rig) must(err error) { g.t.Helper(); testenv.Must(g.t, err) }

// close closes at the end of the test.
func (g *rig) close(f func() error) {
	g.t.Cleanup(func() { testenv.Check(g.t, f()) })
}

// dial opens a state at the other host.
func (g *rig) dial(state int, name string) (s *client.State, err error) {
	g.A.Do(g.t, func() {
		s, err = g.near.State(g.t.Context(), client.StateConfig{Address: g.servers[state].Addr().String(), State: name})
	})
	return s, err
}

// reader is dial that must succeed.
func (g *rig) reader(state int) *client.State {
	g.t.Helper()
	s, err := g.dial(state, g.set.All()[state].Name())
	g.must(err)
	g.close(s.Close)
	return s
}

// until waits for a condition.
func (g *rig) until(what string, ok func() bool) {
	g.t.Helper()
	testenv.Wait(g.t, testenv.Within(10*time.Second), what, ok)
}
