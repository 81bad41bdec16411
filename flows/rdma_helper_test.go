package flows

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/providers"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/umem"
)

// shortly returns the layouts that tests of logs run with: in short mode only the one that copies nothing.
func shortly() []string {
	if testing.Short() {
		return []string{"slot"}
	}
	return layouts
}

// newRDMALab is newLab for flows over RDMA: both ends have addresses.
func newRDMALab(t *testing.T) *lab { return newLab(t, testenv.PairOptions{}) }

// station is a program at end A with a region and an RDMA device of its own.
type station struct {
	lab      *lab
	region   *umem.Region
	endpoint *stream.Endpoint
	worker   *worker.Worker
}

// newStation opens a station with ordinary pages. At the end of the test its pool must have all frames.
func (l *lab) newStation(t *testing.T) *station {
	t.Helper()
	s := &station{lab: l}
	must := func(err error) {
		t.Helper()
		testenv.Must(t, err)
	}
	var err error
	s.region, err = umem.Open(umem.Config{Size: 64 << 20, Pages: umem.Ordinary, ExtentSize: 1 << 20, Extents: 8})
	must(err)
	t.Cleanup(func() {
		count, err := s.region.Audit()
		if err != nil || count.Of(umem.OwnerPool) != s.region.Frames() {
			t.Errorf("in the end the station's pool has %d of %d frames: %v", count.Of(umem.OwnerPool), s.region.Frames(), err)
		}
		testenv.Check(t, s.region.Close())
	})
	l.A.Do(t, func() {
		device, err := providers.Open(rdmaName(&l.A), roce.Config{Region: s.region, Receive: 1024})
		must(err)
		t.Cleanup(func() { testenv.Check(t, device.Close()) })
		s.endpoint, err = stream.OpenEndpoint(device, s.region)
		must(err)
	})
	t.Cleanup(func() { testenv.Check(t, s.endpoint.Close()) })
	s.worker, err = worker.New(config.Worker{Name: "station", Wait: config.WaitSleep, Sleep: 100 * time.Microsecond}, nil)
	must(err)
	t.Cleanup(func() { testenv.Check(t, s.worker.Close()) })
	return s
}

// client sends records to a flow. It keeps each record until the record is acknowledged.
type client struct {
	*stream.Sender
	station *station
	number  uint64 // of the client; its records have it
	sizes   []int  // of payloads, in turn
	always  []byte // payload of every record, for tests that must not allocate; nil: each record has its own
	book    *umem.Book
	hands   *umem.Holder
	frames  []umem.Frame // free, or in a message by its token
	free    []uint64
	results [64]stream.Result
	stop    func()

	mu        sync.Mutex
	want      uint64 // records to send in all
	sent      uint64
	done      uint64   // acknowledged
	positions []uint64 // from acknowledgements
}

// newClient opens a client and has it connect to a flow of the daemon.
func (s *station) newClient(t *testing.T, number uint64, address, flow string, sizes ...int) *client {
	t.Helper()
	return s.newClientAs(t, nil, number, address, flow, sizes...)
}

// newClientAs is newClient with a certificate.
func (s *station) newClientAs(t *testing.T, who *connect.Credentials, number uint64, address, flow string, sizes ...int) *client {
	t.Helper()
	c := &client{station: s, number: number, sizes: sizes, book: s.region.NewBook(fmt.Sprint("client ", number))}
	var err error
	c.hands, err = c.book.NewHolder(umem.OwnerWorker, "client")
	testenv.Must(t, err)
	longest := slices.Max(sizes)
	take, n := c.hands.Take, 300
	if longest > int(s.region.FrameSize()) {
		take, n = c.hands.TakeExtents, 2
	}
	c.frames = make([]umem.Frame, n)
	if got := take(c.frames); got < n {
		t.Fatalf("%d frames of %d", got, n)
	}
	for i := range c.frames {
		c.free = append(c.free, uint64(i))
	}
	c.Sender, err = stream.OpenSender(stream.SenderConfig{Name: fmt.Sprint("client ", number), Endpoint: s.endpoint, Worker: c.hands,
		Address: address, Flow: flow, Connect: connect.Config{Credentials: who}, Depth: 512, Message: uint32(protocol.HeaderLen + longest), Frames: 1, Participant: uint32(number)})
	testenv.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		s.lab.A.Do(t, func() { testenv.Check(t, c.Run(ctx, s.worker.Do)) })
	})
	testenv.Must(t, s.worker.Add(c, worker.Needs{}))
	c.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		err := s.worker.Remove(c)
		err = errors.Join(err, c.Sender.Close())
		c.hands.Give(c.frames)
		c.hands.Close()
		testenv.Check(t, errors.Join(err, c.book.Close()))
	})
	t.Cleanup(c.stop)
	return c
}

// record returns the payload of a client's record: the client's number, the record's number, and bytes that
// follow from both.
func record(number, which uint64, size int) []byte {
	b := make([]byte, size)
	fill := rand.NewChaCha8([32]byte{byte(number), byte(which), byte(which >> 8), byte(which >> 16)})
	_, _ = fill.Read(b)
	if size >= 16 {
		binary.BigEndian.PutUint64(b, number)
		binary.BigEndian.PutUint64(b[8:], which)
	}
	return b
}

func (c *client) size(which uint64) int { return c.sizes[which%uint64(len(c.sizes))] }

// Poll collects acknowledgements and sends the records that are due.
func (c *client) Poll(now time.Time) bool {
	_ = c.Sender.Poll(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := len(c.results); n == len(c.results); {
		n = c.Done(c.results[:])
		for _, r := range c.results[:n] {
			c.free = append(c.free, r.Token)
			if r.Acknowledged {
				c.done++
			}
			if r.Acknowledged && c.always == nil {
				c.positions = append(c.positions, r.Position)
			}
		}
	}
	for c.sent < c.want && len(c.free) > 0 {
		token := c.free[len(c.free)-1]
		b := c.always
		if b == nil {
			b = record(c.number, c.sent, c.size(c.sent))
		}
		f := c.frames[token]
		f.Len = uint32(len(b))
		copy(c.station.region.Bytes(f), b)
		if !c.Send([]umem.Frame{f}, f.Len, protocol.Checksum(b), uint64(now.UnixNano()), token) {
			break
		}
		c.free, c.sent = c.free[:len(c.free)-1], c.sent+1
	}
	_ = c.Kick()
	c.book.Publish()
	return false
}

func (c *client) FDs(dst []unix.PollFd) []unix.PollFd { return dst }

func (c *client) Deadline(now time.Time) time.Time { return now }

// send makes the client send n more records.
func (c *client) send(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.want += uint64(n)
}

// settle waits until everything sent is acknowledged.
func (c *client) settle(t *testing.T) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("client %d: %+v", c.number, c.Stats())
		}
	}()
	testenv.Wait(t, 20*time.Second, fmt.Sprintf("client %d to have all acknowledged", c.number), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.done == c.want
	})
}
