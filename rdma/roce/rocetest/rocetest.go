// Package rocetest gives tests machines with RDMA, and workers. It is for tests.
package rocetest

import (
	"errors"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/umem"
)

// Machine is a place with an address and an RDMA device: a network namespace, or this machine.
type Machine struct {
	In   *testenv.Namespace // nil: this machine
	IP   netip.Addr
	Open func(*umem.Region) (rdma.Device, error)
	*testenv.End
}

// Pair returns two namespaces joined by a veth pair, with RDMA in software.
func Pair(t testing.TB) (near, far Machine) {
	t.Helper()
	pair := testenv.NewPair(t, testenv.PairOptions{MTU: 4200})
	return At(&pair.A), At(&pair.B)
}

// At returns the machine of an end.
func At(e *testenv.End) Machine {
	return Machine{e.Namespace, e.IP, func(r *umem.Region) (rdma.Device, error) { return Open(r, e.Ifname) }, e}
}

// Open opens RDMA in software on an interface of this namespace.
func Open(r *umem.Region, ifname string) (rdma.Device, error) {
	p, err := roce.NewProvider(roce.Config{Region: r, Receive: 1024, Send: 256})
	if err != nil {
		return nil, err
	}
	return p.Open(ifname)
}

// Do runs f in the namespace, see testenv.Namespace.
func (m Machine) Do(t testing.TB, f func()) {
	t.Helper()
	if m.In == nil {
		f()
		return
	}
	m.In.Do(t, f)
}

// Start opens a region and the machine's device, until the end of the test. Then every frame must be in the region's pool.
func (m Machine) Start(t testing.TB, c umem.Config) (r *umem.Region, d rdma.Device) {
	t.Helper()
	r = Region(t, c)
	var err error
	m.Do(t, func() { d, err = m.Open(r) })
	testenv.Must(t, err)
	t.Cleanup(func() { check(t, d.Close()) })
	return r, d
}

// Region opens a region until the end of the test. Then every frame must be in its pool.
func Region(t testing.TB, c umem.Config) *umem.Region {
	t.Helper()
	r, err := umem.Open(c)
	testenv.Must(t, err)
	t.Cleanup(func() {
		count, err := r.Audit()
		if err != nil || count.Of(umem.OwnerPool) != r.Frames() {
			t.Errorf("the pool has %d of %d frames in the end: %v, %v", count.Of(umem.OwnerPool), r.Frames(), count, err)
		}
		check(t, r.Close())
	})
	return r
}

func check(t testing.TB, err error) {
	t.Helper()
	testenv.Check(t, err)
}

// Loop is a worker: a thread that runs rounds and, between them, the functions that a test passes to it.
type Loop struct {
	commands  chan func()
	end, done chan struct{}
	stop      func()
}

// NewLoop starts a worker. round reports whether it did some work. If not, the worker calls idle; nil: it sleeps a moment.
func NewLoop(round func() (moved bool), idle func()) *Loop {
	l := &Loop{commands: make(chan func()), end: make(chan struct{}), done: make(chan struct{})}
	l.stop = sync.OnceFunc(func() { close(l.end) })
	if idle == nil {
		idle = func() { time.Sleep(50 * time.Microsecond) }
	}
	go l.run(round, idle)
	return l
}

func (l *Loop) run(round func() bool, idle func()) {
	defer close(l.done)
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	for {
		select {
		case <-l.end:
			return
		case f := <-l.commands:
			f()
		default:
		}
		if !round() {
			idle()
		}
	}
}

var errEnded = errors.New("the worker has ended")

// Do runs f on the worker's thread. It is the worker's Doer.
func (l *Loop) Do(f func() error) error {
	result := make(chan error, 1)
	select {
	case l.commands <- func() { result <- f() }:
		return <-result
	case <-l.done:
		return errEnded
	}
}

// Stop ends the worker. It may be called several times.
func (l *Loop) Stop() {
	l.stop()
	<-l.done
}
