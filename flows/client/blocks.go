package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/flows/blocks"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// BlocksConfig configures Blocks.
type BlocksConfig struct {
	Address string // of the flow: host:port
	Flow    string // its name; empty: any
	// Peer is NAME/FLOW, as in AppendConfig. It is found once, when the client connects.
	Peer    string
	Longest int // the longest request in bytes; default: what fits in a frame
	Depth   int // outstanding requests, if the flow allows so many; default 32
}

// Blocks reads from a flow that serves a disk. It executes one call at a time; others wait.
type Blocks struct {
	client *Client
	config BlocksConfig
	book   *umem.Book
	hands  *umem.Holder
	from   *blocks.Client
	frames []umem.Frame

	mu   sync.Mutex // held during a call
	free []umem.Frame
	done [64]blocks.Done
}

// Blocks connects to a flow. The caller closes the result.
func (k *Client) Blocks(ctx context.Context, c BlocksConfig) (*Blocks, error) {
	c.Longest, c.Depth = cmp.Or(c.Longest, frameSize), cmp.Or(c.Depth, 32)
	at, err := where{address: c.Address, flow: c.Flow, peer: c.Peer}.find(k.config.Names)
	if err != nil {
		return nil, fmt.Errorf("read blocks of %v: %w", at, err)
	}
	b := &Blocks{client: k, config: c, book: k.region.NewBook("blocks")}
	if err := errors.Join(b.open(ctx, at), at.close()); err != nil {
		return nil, errors.Join(fmt.Errorf("read blocks of %v: %w", at, err), b.Close())
	}
	return b, nil
}

func (b *Blocks) open(ctx context.Context, at where) (err error) {
	if b.hands, err = b.book.NewHolder(umem.OwnerWorker, "blocks"); err != nil {
		return err
	}
	err = at.dial(ctx, connect.Config{Credentials: b.client.config.Credentials}, func(ctx context.Context, address string, c connect.Config) (err error) {
		b.from, err = blocks.Dial(ctx, blocks.ClientConfig{
			Name: "client", Endpoint: b.client.endpoint, Worker: b.hands, Address: address, Flow: at.flow, Connect: c, Window: b.config.Depth,
		})
		return err
	})
	if err != nil {
		return err
	}
	b.config.Longest = min(b.config.Longest, int(b.from.Longest()))
	take := b.hands.Take
	if b.config.Longest > frameSize {
		take = b.hands.TakeExtents
	}
	b.frames = make([]umem.Frame, b.from.Window())
	if n := take(b.frames); n < len(b.frames) {
		b.hands.Give(b.frames[:n])
		b.frames = nil
		return fmt.Errorf("the region has room for %d of %d requests of %d bytes: make Config.Memory or Config.Extents larger", n, b.from.Window(), b.config.Longest)
	}
	b.free = append(b.free, b.frames...)
	return nil
}

// Size returns the number of bytes that are served. Offsets and lengths must be multiples of Align.
func (b *Blocks) Size() uint64  { return b.from.Size() }
func (b *Blocks) Align() uint32 { return b.from.Align() }

// Longest returns the longest request in bytes.
func (b *Blocks) Longest() int { return b.config.Longest }

// Read reads len(p) bytes from an offset, in requests of up to Longest. It copies them out of the
// region.
func (b *Blocks) Read(ctx context.Context, offset uint64, p []byte) error {
	at := 0
	next := func() (uint64, int, bool) {
		n, from := min(len(p)-at, b.config.Longest), offset+uint64(at)
		at += n
		return from, n, n > 0
	}
	return b.Fetch(ctx, next, func(from uint64, got []byte) error {
		copy(p[from-offset:], got)
		return nil
	})
}

// Fetch keeps many requests outstanding: those that next returns, until next returns false. It
// calls got with the bytes of each, in any order. The bytes are in the region, where the flow has
// written them, and valid until got returns. If got returns an error, Fetch waits for the
// outstanding requests and returns the error.
func (b *Blocks) Fetch(ctx context.Context, next func() (offset uint64, length int, ok bool), got func(offset uint64, bytes []byte) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var failed error
	for more, moved := true, time.Now(); more || len(b.free) < len(b.frames); {
		if more && failed == nil {
			more, failed = b.ask(next)
		}
		more = more && failed == nil
		n, err := b.from.Poll(b.done[:])
		if n == 0 && err != nil {
			return errors.Join(failed, err)
		}
		for i := range b.done[:n] {
			failed = cmp.Or(failed, b.take(&b.done[i], got))
		}
		failed = cmp.Or(failed, context.Cause(ctx))
		if n > 0 {
			moved = time.Now()
		}
		b.rest(moved)
	}
	return failed
}

// ask submits requests while there are frames. It reports whether next may have more.
func (b *Blocks) ask(next func() (uint64, int, bool)) (more bool, err error) {
	for len(b.free) > 0 {
		offset, length, ok := next()
		if !ok {
			return false, nil
		}
		last := len(b.free) - 1
		f := b.free[last]
		if length < 1 || length > b.config.Longest {
			return false, fmt.Errorf("a request of %d bytes: it must be 1 to %d", length, b.config.Longest)
		}
		f.Len = uint32(length)
		if err := b.submit(blocks.Read{Offset: offset, Frame: f}); err != nil {
			return false, err
		}
		b.free = b.free[:last]
	}
	return true, nil
}

// submit submits a request. It waits while grants are being made.
func (b *Blocks) submit(r blocks.Read) error {
	for {
		if ok, err := b.from.Submit(r); ok || err != nil {
			return err
		}
		if _, err := b.from.Poll(nil); err != nil {
			return err
		}
	}
}

func (b *Blocks) take(d *blocks.Done, got func(uint64, []byte) error) (err error) {
	if err = d.Err; err == nil {
		err = got(d.Offset, b.client.region.Bytes(d.Frame))
	} else {
		err = fmt.Errorf("read %d bytes at %d: %w", d.Frame.Len, d.Offset, err)
	}
	start, _ := b.client.region.Start(d.Frame)
	b.free = append(b.free, umem.Frame{Addr: start, Len: d.Frame.Len})
	return err
}

// rest lets other goroutines run if nothing has arrived for a while.
func (b *Blocks) rest(since time.Time) {
	if !b.client.config.Spin && time.Since(since) > pollInterval {
		sleep(sleepInterval)
	} else {
		runtime.Gosched()
	}
}

// Close ends the connection and gives the frames back.
func (b *Blocks) Close() error {
	if b.from != nil {
		if err := b.from.Close(); err != nil {
			return err
		}
		b.from = nil
	}
	if b.hands != nil {
		b.hands.Give(b.free)
		b.free, b.frames = nil, nil
		b.hands.Close()
	}
	return b.book.Close()
}
