package transfer

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/nvme"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// SenderConfig configures a Sender. The zero value of each field but Endpoint, Path and Address selects a default.
type SenderConfig struct {
	// Endpoint is the device, with a region whose extents have the size of a piece: 1 MiB to 1 GiB. It outlives the
	// sender, which takes Window extents and some frames.
	Endpoint *stream.Endpoint
	Path     string // file or block device
	Address  string // of the receiver: host:port
	Name     string // of the copy, below the receiver's directory; default: the last part of Path
	Window   int    // pieces at once, 2 to 1024; default 8
	Limit    uint64 // bytes in a second; 0: no limit
	Times    bool   // the copy gets the source's time of modification
	Perms    bool   // the copy gets the source's permissions
	Connect  connect.Config
	// Timeout is how long the sender tries to connect again while nothing moves; default one minute.
	Timeout time.Duration
	Log     *slog.Logger // default slog.Default()
}

const defaultPersistence = time.Minute

// Sender sends one file or device.
type Sender struct {
	config  SenderConfig
	source  *source
	request request
	hello   []byte
	piece   uint64
	book    *umem.Book
	worker  *umem.Holder
	control *umem.Holder
	writing *umem.Holder // extents that the device sends from
	queue   *nvme.Queue
	target  uint32
	align   uint64
	extents []umem.Frame // free
	all     []umem.Frame
	hashers *hashers
	limiter limiter

	items   []sendItem // of the connection's round
	digest  [32]byte   // of the whole, at the end
	damaged int        // connections that ended because a checksum was wrong
	state   atomic.Pointer[string]
	count   senderCounts
}

// senderCounts are written by Run's thread.
type senderCounts struct {
	sent, holes, at, durable, resumed, connections, read, kernel counter.Counter

	attempts atomic.Uint64 // that failed since there was a connection
}

// ErrLost says that the receiver could not be reached for SenderConfig.Timeout. What is durable there stays: send again.
var ErrLost = errors.New("there is no connection to the receiver")

// OpenSender opens the source. Run sends it. The caller closes the sender.
func OpenSender(c SenderConfig) (*Sender, error) {
	c.Window, c.Timeout, c.Log = cmp.Or(c.Window, defaultWindow), cmp.Or(c.Timeout, defaultPersistence), cmp.Or(c.Log, slog.Default())
	c.Name = cmp.Or(c.Name, filepath.Base(c.Path))
	s := &Sender{config: c, piece: c.Endpoint.Region.ExtentSize(), limiter: limiter{rate: float64(c.Limit)}}
	s.enter("")
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("send %s: %w", c.Path, err), s.Close())
	}
	return s, nil
}

func (s *Sender) open() (err error) {
	c := &s.config
	switch region := c.Endpoint.Region; {
	case !isPiece(uint32(s.piece)):
		return fmt.Errorf("the region has extents of %d bytes: they must be %d to %d", s.piece, minPiece, maxPiece)
	case c.Window < 2 || c.Window > maxWindow || region.Extents() < uint64(c.Window):
		return fmt.Errorf("a window of %d pieces: it must be 2 to %d, and the region has %d extents", c.Window, maxWindow, region.Extents())
	}
	if s.source, err = openSource(c.Path); err != nil {
		return err
	}
	s.request = request{piece: uint32(s.piece), session: session64(), size: s.source.size, mode: s.source.mode, identity: s.source.identity(), name: c.Name}
	for bit, set := range map[uint32]bool{wantTimes: c.Times, wantPerms: c.Perms, isDevice: s.source.device, hasHoles: s.source.holes} {
		if set {
			s.request.flags |= bit
		}
	}
	if c.Times {
		s.request.modified = s.source.mtime
	}
	if len(c.Name) > maxName {
		return fmt.Errorf("the name of the copy has %d bytes: at most %d are possible", len(c.Name), maxName)
	}
	if s.hello, err = s.request.append(nil); err != nil {
		return err
	}
	return s.openDisk()
}

// session64 returns a number for a transfer.
func session64() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it does not fail
	return max(be.Uint64(b[:]), 1)
}

// openDisk makes the disk queue, and takes the extents.
func (s *Sender) openDisk() (err error) {
	n := s.config.Window
	s.book = s.config.Endpoint.Region.NewBook("send " + s.config.Path)
	for _, h := range []struct {
		to    **umem.Holder
		owner umem.Owner
	}{{&s.worker, umem.OwnerWorker}, {&s.writing, umem.OwnerRDMA}, {&s.control, umem.OwnerRDMA}} {
		if *h.to, err = s.book.NewHolder(h.owner, "send "+s.config.Path); err != nil {
			return err
		}
	}
	s.all = make([]umem.Frame, n)
	if got := s.worker.TakeExtents(s.all); got < n {
		s.worker.Give(s.all[:got])
		return fmt.Errorf("the region has %d of %d extents", got, n)
	}
	s.extents = append(make([]umem.Frame, 0, n), s.all...)
	if s.queue, err = nvme.Open(nvme.Config{Worker: s.worker, Name: "send", Depth: n, Targets: 1}); err != nil {
		return err
	}
	if s.target, err = s.queue.Add(s.source.target); err != nil {
		return err
	}
	if s.align = uint64(s.source.target.Alignment().Offset); s.align > blockSize || uint64(s.source.target.Alignment().Memory) > blockSize {
		return fmt.Errorf("it needs an alignment of %v, more than %d", s.source.target.Alignment(), blockSize)
	}
	s.items = make([]sendItem, 2*n)
	for i := range s.items {
		s.items[i].work = newHashing(s.piece)
	}
	s.hashers = newHashers(hashThreads(), len(s.items))
	return nil
}

// Close gives everything back. Run must have ended. A second call does nothing.
func (s *Sender) Close() (err error) {
	if s.hashers != nil {
		s.hashers.close()
		s.hashers = nil
	}
	if s.queue != nil {
		if err := s.queue.Close(); err != nil {
			return err
		}
		s.queue = nil
	}
	for _, h := range []*umem.Holder{s.writing, s.control, s.worker} {
		if h != nil {
			h.Close()
		}
	}
	if s.book != nil {
		err = s.book.Close()
		s.book = nil
	}
	if s.source != nil {
		err = errors.Join(err, s.source.close())
		s.source = nil
	}
	return err
}

// Waits between two attempts to connect.
const (
	leastWait = 50 * time.Millisecond
	mostWait  = 2 * time.Second
)

// Run sends the source, and returns when the receiver has the copy, complete and durable, or why it has not. It occupies
// the thread meanwhile. It connects again when a connection ends. An error that has a [protocol.Reason] is the receiver's,
// or says that the source has changed ([protocol.Changed]).
func (s *Sender) Run(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	wait, since, best := leastWait, time.Now(), uint64(0)
	for first := true; ; first = false {
		connected, err := s.connection(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("send %s: %w", s.config.Path, context.Cause(ctx))
		}
		if s.final(err, first && !connected) {
			return fmt.Errorf("send %s to %s: %w", s.config.Path, s.config.Address, err)
		}
		if at := s.count.durable.Load(); at > best {
			wait, since, best = leastWait, time.Now(), at
		}
		if time.Since(since) > s.config.Timeout {
			return fmt.Errorf("send %s to %s: %w: nothing has moved for %v: %w", s.config.Path, s.config.Address, ErrLost, s.config.Timeout, err)
		}
		s.enter(err.Error())
		if s.count.attempts.Add(1) == 1 {
			s.config.Log.Warn("no connection to the receiver: trying again", "address", s.config.Address, protocol.LogReason(err), "err", err)
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
		wait = min(2*wait, mostWait)
	}
}

// enter records why there is no connection; "": there is one.
func (s *Sender) enter(cause string) {
	if cause == "" {
		s.count.attempts.Store(0)
	}
	s.state.Store(&cause)
}

// final reports whether another attempt makes no sense. first says that there has been no connection yet.
func (s *Sender) final(err error, first bool) bool {
	if why, is := reasonIn(err); is {
		if why == protocol.BadPayload {
			s.damaged++
		}
		return why != protocol.Busy && why != protocol.Closing && (why != protocol.BadPayload || s.damaged > mostDamaged)
	}
	switch connect.ReasonOf(err) {
	case connect.ReasonTLS, connect.ReasonVersion, connect.ReasonFormat, connect.ReasonRefused:
		return true
	case connect.ReasonClosed: // the receiver ended while it was dialed
		return false
	}
	return first || errors.As(err, new(*diskFault))
}

// mostDamaged is how often a sender tries again after the receiver has found a wrong checksum.
const mostDamaged = 3

// diskFault is an error of the source's disk, or of this side's queues.
type diskFault struct{ err error }

func (e *diskFault) Error() string { return e.err.Error() }
func (e *diskFault) Unwrap() error { return e.err }

// SenderStats are the counters of a Sender.
type SenderStats struct {
	Size        uint64 // of the source
	At          uint64 // bytes, from the first on, that were sent, or were there
	Durable     uint64 // bytes that are durable at the receiver
	Sent        uint64 // bytes over the network, sent again ones included
	Holes       uint64 // bytes of holes
	Resumed     uint64 // bytes that were there at the first connection
	Connections uint64
	Read        uint64 // bytes that the disk has read
	// Kernel has the bytes that the kernel copied, because the file system has no direct I/O. The sender copies none.
	Kernel   uint64
	Waits    string // why there is no connection; empty: there is one
	Attempts uint64 // that have failed since there was one
}

// Digest returns the hash of the source after Run: the SHA-256 of the BLAKE3 hashes of each MiB.
func (s *Sender) Digest() [32]byte { return s.digest }

// Stats returns the counters. Any goroutine may call it.
func (s *Sender) Stats() SenderStats {
	c := &s.count
	return SenderStats{Size: s.request.size, At: c.at.Load(), Durable: c.durable.Load(), Sent: c.sent.Load(), Holes: c.holes.Load(), Resumed: c.resumed.Load(),
		Connections: c.connections.Load(), Read: c.read.Load(), Kernel: c.kernel.Load(), Waits: *s.state.Load(), Attempts: c.attempts.Load()}
}

// listen reads the receiver's texts until the connection ends, and returns the last one as an error.
func listen(conn *connect.Conn) error {
	said := ""
	for {
		text, err := conn.Receive()
		switch {
		case err == nil:
			said = string(text)
			continue
		case said != "":
			return readReason(said)
		case errors.Is(err, io.EOF):
			return errors.New("the receiver has closed the connection")
		}
		return err
	}
}
