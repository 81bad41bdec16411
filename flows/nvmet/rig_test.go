package nvmet

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/roce/rocetest"
	"github.com/unifiedd/unifiedd/umem"
)

// waitLimit is the limit of every wait in these tests.
var waitLimit = testenv.Within(30 * time.Second)

// rig is the environment of servers: a region, an RDMA device with it, and a connection manager.
type rig struct {
	*testing.T
	region   *umem.Region
	endpoint *stream.Endpoint
	manager  cm.Manager
	listen   string
	pause    time.Duration // of a worker that has nothing to do; 0: 100 µs
}

// with returns the rig for a part of its test.
func (r *rig) with(t *testing.T) *rig {
	on := *r
	on.T = t
	return &on
}

// openRegion opens a region of that many bytes, with extents of 1 MiB.
func (r *rig) openRegion(size, extents uint64) {
	r.Helper()
	r.region = rocetest.Region(r.T, umem.Config{Size: size, Extents: extents, Pages: umem.Ordinary, Control: 2 << 20})
}

func (r *rig) must(err error) { r.Helper(); testenv.Must(r, err) }

func (r *rig) check(err error) { r.Helper(); testenv.Check(r, err) }

// served is a server and the worker that polls it.
type served struct {
	*rig
	server *Server
	loop   *rocetest.Loop
	ended  bool   // of the loop: the server has failed
	cease  func() // ends Serve; may be called before stop
	stop   func() // may be called before the end of the test
}

// serve serves until the end of the test.
func (r *rig) serve(c Config) *served {
	r.Helper()
	v := &served{rig: r}
	book := r.region.NewBook("worker")
	r.Cleanup(func() { r.check(book.Close()) })
	hands, err := book.NewHolder(umem.OwnerWorker, "hands")
	r.must(err)
	r.Cleanup(func() { hands.Close() })
	c.Name, c.Endpoint, c.Worker, c.Log = "served", r.endpoint, hands, slog.New(slog.NewTextHandler(r.Output(), nil))
	v.server, err = Open(c)
	r.must(err)
	v.loop = rocetest.NewLoop(v.round, func() { time.Sleep(cmp.Or(v.pause, 100*time.Microsecond)) })
	listener, err := r.manager.Listen(netip.MustParseAddrPort(r.listen), 0)
	r.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- v.server.Serve(ctx, listener, v.do) }()
	v.cease = sync.OnceFunc(func() {
		cancel()
		r.check(<-over)
	})
	v.stop = sync.OnceFunc(func() {
		v.cease()
		r.check(v.do(v.end))
		v.loop.Stop()
	})
	r.Cleanup(v.stop)
	return v
}

// round is what the worker does.
func (v *served) round() bool {
	if v.ended {
		return false
	}
	more, err := v.server.Poll(time.Now())
	if err != nil {
		v.Error(err)
		v.check(v.end())
	}
	return more
}

// end closes the server on the worker's thread.
func (v *served) end() error {
	if v.ended {
		return nil
	}
	v.ended = true
	return v.server.Close()
}

func (v *served) do(f func() error) error { return v.loop.Do(f) }
