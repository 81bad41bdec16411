//go:build lab && verbs && cgo

package target

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/providers"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/umem"
)

// patience is how long anything may take.
var patience = testenv.Within(30 * time.Second)

// rig is a region, a Soft-RoCE device with it, and the connection manager.
type rig struct {
	*testing.T
	region   *umem.Region
	endpoint *stream.Endpoint
	manager  cm.Manager
}

const frames, extents = 24 << 20, 24

func newRig(t *testing.T) *rig {
	t.Helper()
	testenv.Leaks(t)
	r := &rig{T: t}
	name := labenv.SoftRoCE(t, "virtio0", address+"/24")
	t.Cleanup(func() { labenv.RDMAAtRest(t, name, "cq") }) // the initiator keeps completion queues for others
	var err error
	r.region, err = umem.Open(umem.Config{Size: frames + extents<<20, Extents: extents, Pages: umem.Ordinary, Control: 2 << 20})
	r.must(err)
	t.Cleanup(r.closeRegion)
	device, err := providers.Open(name, roce.Config{})
	r.must(err)
	t.Cleanup(func() { r.check(device.Close()) })
	r.endpoint, err = stream.OpenEndpoint(device, r.region)
	r.must(err)
	t.Cleanup(func() { r.check(r.endpoint.Close()) })
	r.manager, err = cm.Open()
	r.must(err)
	t.Cleanup(func() { r.check(r.manager.Close()) })
	return r
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

// closeRegion finds all frames in the pool.
func (r *rig) closeRegion() {
	r.Helper()
	count, err := r.region.Audit()
	if err != nil || count.Of(umem.OwnerPool) != r.region.Frames() {
		r.Errorf("the pool has %d of %d frames in the end: %v, %v", count.Of(umem.OwnerPool), r.region.Frames(), count, err)
	}
	r.check(r.region.Close())
}

// served is a server that is polled.
type served struct {
	*rig
	server   *Server
	commands chan func()
	done     chan struct{}
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
	listener, err := r.manager.Listen(netip.MustParseAddrPort(address+":4420"), 0)
	r.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- v.server.Serve(ctx, listener, v.do) }()
	r.Cleanup(func() {
		cancel()
		r.check(<-over)
		close(stop)
		<-v.done
	})
	return v
}

// loop is the worker.
func (v *served) loop(stop chan struct{}) {
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
			time.Sleep(100 * time.Microsecond)
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

// disk opens a disk of the guest's.
func (r *rig) disk(size uint64) *nvme.Target {
	r.Helper()
	d, err := nvme.OpenTarget(nvme.TargetConfig{Path: labenv.Map(r.T, size).Path, Force: true})
	r.must(err)
	r.Cleanup(func() { r.check(d.Close()) })
	return d
}
