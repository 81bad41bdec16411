package flows

import (
	"bytes"
	"slices"
	"sync"
	"testing"

	"github.com/unifiedd/unifiedd/flows/device"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/providers"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/umem"
)

// verbsDevice is the RDMA device of both ends in the lab. If it is empty, each end has RoCE in software on
// its interface.
var verbsDevice string

// rdmaName is the RDMA device of an end.
func rdmaName(e *testenv.End) string {
	if verbsDevice != "" {
		return verbsDevice
	}
	return "roce:" + e.Ifname
}

// spy is an RDMA device that notes each work request before it passes the request to the real device.
type spy struct {
	rdma.Device
	sent func([]rdma.SGE) // on the worker's thread, before each request; not changed once flows run

	mu     sync.Mutex
	posted map[uint64]bool // addresses of posted receives
	paths  []rdma.Address  // of the queue pairs that were connected
}

// spied opens a spy as the daemon's RDMA device, and releases it at the end of the test.
func (l *lab) spied(t *testing.T, d *Daemon) *spy {
	t.Helper()
	s := &spy{posted: map[uint64]bool{}}
	name := rdmaName(&l.B)
	var one *device.RDMA
	l.B.Do(t, func() {
		var err error
		if s.Device, err = providers.Open(name, roce.Config{Region: d.Region(), Receive: 256}); err == nil {
			var e *stream.Endpoint
			if e, err = stream.OpenEndpoint(s, d.Region()); err == nil {
				one = d.devices.Add(name, e)
			}
		}
		testenv.Must(t, err)
	})
	t.Cleanup(func() {
		for _, f := range d.Flows() {
			testenv.Check(t, f.Stop())
		}
		testenv.Check(t, d.devices.Release(one))
	})
	return s
}

// isPosted reports whether a receive was posted at an address.
func (s *spy) isPosted(addr uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.posted[addr]
}

func (s *spy) receives(sges []rdma.SGE) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range sges {
		s.posted[e.Addr] = true
	}
}

func (s *spy) sends(requests []rdma.SendRequest, sges []rdma.SGE) {
	for i := range requests {
		n := requests[i].SGEs
		s.sent(sges[:n])
		sges = sges[n:]
	}
}

func (s *spy) NewProtectionDomain() (rdma.ProtectionDomain, error) {
	pd, err := s.Device.NewProtectionDomain()
	return spiedDomain{pd, s}, err
}

// spiedDomain makes queue pairs and shared receive queues that report to the spy.
type spiedDomain struct {
	rdma.ProtectionDomain
	spy *spy
}

func (d spiedDomain) NewQueuePair(c rdma.QueuePairConfig) (rdma.QueuePair, error) {
	wanted := c.Shared
	if shared, is := wanted.(spiedQueue); is {
		c.Shared = shared.SharedReceiveQueue
	}
	qp, err := d.ProtectionDomain.NewQueuePair(c)
	if err != nil {
		return nil, err
	}
	return spiedPair{qp, d.spy, wanted}, nil
}

func (d spiedDomain) NewSharedReceiveQueue(c rdma.SharedReceiveQueueConfig) (rdma.SharedReceiveQueue, error) {
	q, err := d.ProtectionDomain.NewSharedReceiveQueue(c)
	if err != nil {
		return nil, err
	}
	return spiedQueue{q, d.spy}, nil
}

type spiedQueue struct {
	rdma.SharedReceiveQueue
	spy *spy
}

func (q spiedQueue) PostReceive(requests []rdma.ReceiveRequest, sges []rdma.SGE) (int, error) {
	q.spy.receives(sges)
	return q.SharedReceiveQueue.PostReceive(requests, sges)
}

type spiedPair struct {
	rdma.QueuePair
	spy    *spy
	shared rdma.SharedReceiveQueue
}

// Config returns the configuration with the shared receive queue that the queue pair was made with.
func (p spiedPair) Config() rdma.QueuePairConfig {
	c := p.QueuePair.Config()
	c.Shared = p.shared
	return c
}

func (p spiedPair) PostSend(requests []rdma.SendRequest, sges []rdma.SGE) (int, error) {
	p.spy.sends(requests, sges)
	return p.QueuePair.PostSend(requests, sges)
}

// Modify notes to where the queue pair is connected.
func (p spiedPair) Modify(a rdma.Attributes, given rdma.Mask) error {
	if given&rdma.MaskAddress != 0 {
		p.spy.mu.Lock()
		p.spy.paths = append(p.spy.paths, a.Address)
		p.spy.mu.Unlock()
	}
	return p.QueuePair.Modify(a, given)
}

func (p spiedPair) PostReceive(requests []rdma.ReceiveRequest, sges []rdma.SGE) (int, error) {
	p.spy.receives(sges)
	return p.QueuePair.PostReceive(requests, sges)
}

// placesOf returns every place of some bytes in a region.
func placesOf(r *umem.Region, what []byte) (at []uint64) {
	data := r.Data()
	for from := 0; ; {
		i := bytes.Index(data[from:], what)
		if i < 0 {
			return at
		}
		at = append(at, uint64(from+i))
		from += i + 1
	}
}

// sightings notes where in the region messages were seen. It recognizes each message by its unique bytes.
type sightings struct {
	region *umem.Region
	mu     sync.Mutex
	wanted [][]byte // the unique bytes of each message
	where  [][]uint64
	given  []uint64 // address that the next device gets
}

// look is called when a device is about to get a part of the region. For each message in that part, it notes
// all places of the message in the region.
func (s *sightings) look(addr uint64, length uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	part := s.region.At(addr, uint64(length))
	for i, mark := range s.wanted {
		if at := bytes.Index(part, mark); at >= 0 && s.where[i] == nil {
			s.given[i], s.where[i] = addr+uint64(at), placesOf(s.region, mark)
		}
	}
}

// want sets the messages to look for.
func (s *sightings) want(region *umem.Region, marks [][]byte) {
	s.region, s.wanted, s.where, s.given = region, marks, make([][]uint64, len(marks)), make([]uint64, len(marks))
}

// judge checks that each message was in exactly this many places of the region, and that the device got it
// from one of them.
func (s *sightings) judge(t *testing.T, copies int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, at := range s.where {
		if len(at) != copies || !slices.Contains(at, s.given[i]) {
			t.Errorf("message %d was given to the device from %#x, and is at %#x in the region: %d places were to be", i, s.given[i], at, copies)
		}
	}
}
