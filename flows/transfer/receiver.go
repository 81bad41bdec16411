package transfer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// ReceiverConfig configures a Receiver. The zero value of each field but Endpoint and Path selects a default.
type ReceiverConfig struct {
	// Endpoint is the device, with a region whose extents have the size of a piece: 1 MiB to 1 GiB. It outlives the
	// receiver. Each sender at a time takes Window extents and some frames.
	Endpoint *stream.Endpoint
	Path     string // directory, or block device
	// State is the directory with the records of devices: what a device has when it is not complete. It is not used for files.
	State string
	Force bool // write to a device even if it is not empty or in use
	// KeepFree is how many bytes of the file system stay free.
	KeepFree uint64
	Window   int // pieces of one sender at once, 2 to 1024; default 8
	Senders  int // senders at once; default 4
	// Timeout is how long a sender may say nothing; default 30 s.
	Timeout time.Duration
	// Permit decides whether a sender may send; nil: every sender may.
	Permit      func(connect.Peer, protocol.Hello) error
	AllowAnyGID bool
	// Done, if not nil, is called for each copy that was completed, by any goroutine.
	Done func(Copy)
	Log  *slog.Logger // default slog.Default()
}

// Copy describes what was received.
type Copy struct {
	Name    string // in the directory, or the path of the device
	Peer    string
	Size    uint64
	Resumed uint64        // bytes that were there before the last connection
	Took    time.Duration // of the last connection
	Digest  [32]byte      // SHA-256 of the BLAKE3 hashes of each MiB
}

// Defaults and limits of a ReceiverConfig.
const (
	defaultWindow  = 8
	defaultSenders = 4
	defaultSilence = 30 * time.Second
)

// Receiver receives files into a directory, or one file or device into a block device. Any goroutine may use it.
type Receiver struct {
	config  ReceiverConfig
	piece   uint64
	place   *place
	hashers *hashers
	all     sync.WaitGroup

	mu    sync.Mutex
	using map[string]*session // under mu: the names in use
	count receiverCounts
}

// receiverCounts are counted by several goroutines.
type receiverCounts struct {
	connections, complete     atomic.Uint64
	bytes, resumed, holes     atomic.Uint64
	written, flushes, records atomic.Uint64
	kernel                    atomic.Uint64
	refused, ended            [256]atomic.Uint64 // by reason
	left                      atomic.Uint64
}

// OpenReceiver opens the place of a receiver. Serve lets senders in. The caller closes the receiver.
func OpenReceiver(c ReceiverConfig) (*Receiver, error) {
	c.Window, c.Senders, c.Timeout = cmp.Or(c.Window, defaultWindow), cmp.Or(c.Senders, defaultSenders), cmp.Or(c.Timeout, defaultSilence)
	c.Log = cmp.Or(c.Log, slog.Default())
	r := &Receiver{config: c, using: map[string]*session{}}
	region := c.Endpoint.Region
	r.piece = region.ExtentSize()
	switch {
	case !isPiece(uint32(r.piece)) || r.piece > maxPiece:
		return nil, fmt.Errorf("receive into %s: the region has extents of %d bytes: they must be %d to %d", c.Path, r.piece, minPiece, maxPiece)
	case c.Window < 2 || c.Window > maxWindow:
		return nil, fmt.Errorf("receive into %s: a window of %d pieces: it must be 2 to %d", c.Path, c.Window, maxWindow)
	case region.Extents() < uint64(c.Window*c.Senders):
		return nil, fmt.Errorf("receive into %s: %d senders with a window of %d pieces need as many extents, and the region has %d", c.Path, c.Senders, c.Window, region.Extents())
	}
	var err error
	if r.place, err = openPlace(c.Path, c.State, c.Force, c.KeepFree); err != nil {
		return nil, err
	}
	r.hashers = newHashers(hashThreads(), c.Window*c.Senders)
	return r, nil
}

// hashThreads returns how many goroutines hash. A processor stays for the thread that moves the bytes.
func hashThreads() int { return min(max(runtime.GOMAXPROCS(0)-1, 1), 8) }

// Close gives everything back. Serve must have ended. A second call does nothing.
func (r *Receiver) Close() error {
	if r.place == nil {
		return nil
	}
	r.all.Wait()
	r.hashers.close()
	err := r.place.close()
	r.place = nil
	return err
}

// ReceiverStats are the counters of a Receiver.
type ReceiverStats struct {
	Connections uint64
	Complete    uint64 // copies
	Bytes       uint64 // that came over the network, without holes
	Holes       uint64 // bytes of holes
	Resumed     uint64 // bytes that were there at the beginning of a connection
	Written     uint64 // bytes that disks have written
	Flushes     uint64
	Records     uint64 // times that it was recorded what is durable
	// Kernel has the bytes that the kernel copied, because the file system has no direct I/O. The receiver copies none.
	Kernel  uint64
	Refused map[protocol.Reason]uint64 // senders that were not let in
	Ended   map[protocol.Reason]uint64 // connections that ended for a reason
	Left    uint64                     // connections that ended because the sender was gone
}

// Stats returns the counters.
func (r *Receiver) Stats() ReceiverStats {
	c := &r.count
	s := ReceiverStats{Connections: c.connections.Load(), Complete: c.complete.Load(), Bytes: c.bytes.Load(), Holes: c.holes.Load(), Resumed: c.resumed.Load(),
		Written: c.written.Load(), Flushes: c.flushes.Load(), Records: c.records.Load(), Kernel: c.kernel.Load(), Left: c.left.Load(),
		Refused: map[protocol.Reason]uint64{}, Ended: map[protocol.Reason]uint64{}}
	for _, why := range protocol.Reasons() {
		if n := c.refused[why].Load(); n > 0 {
			s.Refused[why] = n
		}
		if n := c.ended[why].Load(); n > 0 {
			s.Ended[why] = n
		}
	}
	return s
}

// ends counts why a connection ended.
func (c *receiverCounts) ends(err error) {
	switch why, is := reasonIn(err); {
	case is:
		c.ended[why].Add(1)
	case errors.Is(err, errLeft), errors.Is(err, errGone):
		c.left.Add(1)
	}
}
