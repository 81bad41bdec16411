package flows

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/flows/worker"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// collector is a peer at end A that receives messages and acknowledges them. While it is silent, it does
// neither.
type collector struct {
	*stream.Receiver
	station  *station
	listener *connect.Listener
	frames   [32]umem.Frame
	got      []umem.Frame
	book     *umem.Book
	stop     func()

	mu     sync.Mutex
	all    [][]byte // payloads
	silent bool
}

// newCollector opens a collector. The daemon reaches it at an address of the test's own namespace, since
// goroutines dial from there.
func (s *station) newCollector(t *testing.T, address string) *collector {
	t.Helper()
	return s.newCollectorOf(t, address, false)
}

// newCollectorOf opens a collector. Peers send it messages or, with write, write them into its memory.
func (s *station) newCollectorOf(t *testing.T, address string, write bool) *collector {
	t.Helper()
	c := &collector{station: s, book: s.region.NewBook("collector"), got: make([]umem.Frame, 64)}
	hands, err := c.book.NewHolder(umem.OwnerWorker, "collector")
	testenv.Must(t, err)
	if c.Receiver, err = stream.OpenReceiver(stream.ReceiverConfig{Name: "collector", AllowAnyGID: true, Endpoint: s.endpoint, Worker: hands, Flow: "sink", Message: protocol.HeaderLen + 2048,
		Window: len(c.frames), Peers: 1, Durability: protocol.Received, Check: true, Write: write}); err != nil {
		t.Fatal(err)
	}
	c.listener, err = connect.Listen(context.Background(), address, connect.Config{})
	testenv.Must(t, err)
	hands.Take(c.frames[:])
	c.Supply(c.frames[:])
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { testenv.Check(t, c.Serve(ctx, c.listener, s.worker.Do)) })
	testenv.Must(t, s.worker.Add(c, worker.Needs{}))
	c.stop = sync.OnceFunc(func() {
		cancel()
		serving.Wait()
		err := s.worker.Remove(c)
		err = errors.Join(err, c.Receiver.Close(), c.listener.Close())
		hands.Close()
		testenv.Check(t, errors.Join(err, c.book.Close()))
	})
	t.Cleanup(c.stop)
	return c
}

func (c *collector) address() string {
	return fmt.Sprintf("127.0.0.1:%d", c.listener.Addr().(*net.TCPAddr).Port)
}

func (c *collector) Poll(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	region := c.station.region
	n := 0
	if !c.silent {
		n = c.Recv(c.got)
	}
	for _, f := range c.got[:n] {
		message := region.Bytes(f)
		d, _ := protocol.ParseData(message)
		c.all = append(c.all, bytes.Clone(message[protocol.HeaderLen:]))
		c.Acknowledge(region.Side(f).Queue, d.Sequence, 0)
	}
	c.Supply(c.got[:n])
	_ = c.Receiver.Poll(now)
	c.book.Publish()
	return false
}

func (c *collector) FDs(dst []unix.PollFd) []unix.PollFd { return dst }

func (c *collector) Deadline(now time.Time) time.Time { return now }

func (c *collector) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}

// be sets silent.
func (c *collector) be(silent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = silent
}

// await waits for n messages and returns all messages.
func (c *collector) await(t *testing.T, n int) [][]byte {
	t.Helper()
	testenv.Wait(t, 20*time.Second, fmt.Sprintf("%d messages at the peer", n), func() bool { return c.count() >= n })
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all
}
