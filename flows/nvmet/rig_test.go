package nvmet

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/cm"
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
	var err error
	r.region, err = umem.Open(umem.Config{Size: size, Extents: extents, Pages: umem.Ordinary, Control: 2 << 20})
	r.must(err)
	r.Cleanup(r.closeRegion)
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) check(err error) {
	r.Helper()
	if err != nil {
		r.Error(err)
	}
}

// closeRegion checks that all frames are in the pool, and closes the region.
func (r *rig) closeRegion() {
	r.Helper()
	count, err := r.region.Audit()
	if err != nil || count.Of(umem.OwnerPool) != r.region.Frames() {
		r.Errorf("the pool has %d of %d frames in the end: %v, %v", count.Of(umem.OwnerPool), r.region.Frames(), count, err)
	}
	r.check(r.region.Close())
}

// served is a server and the worker that polls it.
type served struct {
	*rig
	server   *Server
	commands chan func()
	done     chan struct{}
	stop     func() // may be called before the end of the test
}

var errEnded = errors.New("the loop has ended")

// serve serves until the end of the test.
func (r *rig) serve(c Config) *served {
	r.Helper()
	v := &served{rig: r, commands: make(chan func()), done: make(chan struct{})}
	book := r.region.NewBook("worker")
	r.Cleanup(func() { r.check(book.Close()) })
	hands, err := book.NewHolder(umem.OwnerWorker, "hands")
	r.must(err)
	r.Cleanup(func() { hands.Close() })
	c.Name, c.Endpoint, c.Worker, c.Log = "served", r.endpoint, hands, slog.New(slog.NewTextHandler(r.Output(), nil))
	v.server, err = Open(c)
	r.must(err)
	stop := make(chan struct{})
	go v.loop(stop)
	listener, err := r.manager.Listen(netip.MustParseAddrPort(r.listen), 0)
	r.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- v.server.Serve(ctx, listener, v.do) }()
	v.stop = sync.OnceFunc(func() {
		cancel()
		r.check(<-over)
		close(stop)
		<-v.done
	})
	r.Cleanup(v.stop)
	return v
}

// loop is the worker.
func (v *served) loop(stop chan struct{}) {
	pause := cmp.Or(v.pause, 100*time.Microsecond)
	runtime.LockOSThread()
	defer close(v.done)
	for {
		select {
		case f := <-v.commands:
			f()
		case <-stop:
			v.check(v.server.Close())
			return
		default:
		}
		more, err := v.server.Poll(time.Now())
		if err != nil {
			v.Error(err)
			v.check(v.server.Close())
			return
		}
		if !more {
			time.Sleep(pause)
		}
	}
}

func (v *served) do(f func() error) error {
	result := make(chan error, 1)
	select {
	case v.commands <- func() { result <- f() }:
		return <-result
	case <-v.done:
		return errEnded
	}
}
