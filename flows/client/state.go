package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// The errors of a State.
var (
	ErrAgain    = wire.ErrAgain    // it was being written, a hundred times
	ErrNotFound = wire.ErrNotFound // there is no such key, or the object has no payload
	ErrShort    = wire.ErrShort    // dst is too short
	ErrKind     = wire.ErrKind     // Get of a state that has keys, or Lookup of one that has objects
	ErrObject   = wire.ErrObject   // the state has no object of that number
	ErrKey      = wire.ErrKey      // a key has 1 to 120 bytes
	ErrWord     = wire.ErrWord     // the state has no word of that number
)

// ErrDisconnected says that there is no connection to the state. A State with StateConfig.Peer connects again by itself.
var ErrDisconnected = errors.New("no connection")

// StateConfig configures a State.
type StateConfig struct {
	Address string // where the daemon listens for readers of the state: host:port
	State   string // its name
	// Peer is NAME/STATE, the names of a daemon and of its state, which Config.Names finds; Address and State are empty
	// then. The State follows: when the connection ends, or the daemon is at another address, it connects again. With TLS
	// the daemon needs a certificate that is valid for NAME.
	Peer string
}

// State reads a state of a daemon by RDMA READ. The daemon's processors take no part in that. It executes one call at a
// time; others wait.
//
// After an error of the connection every call returns that error, and the caller opens another State. A State with
// StateConfig.Peer connects again instead. Each time that it does, at least one call returns ErrDisconnected, also if the
// new connection is there by then: another daemon has the state now, or the daemon was started again, and what was read
// before may be of another run ([State.Position]).
type State struct {
	client *Client
	where  where
	book   *umem.Book
	hands  *umem.Holder
	frame  umem.Frame // where READs land; zero: none is taken
	local  rdma.MemoryRegion
	head   atomic.Pointer[wire.StateHead] // of the daemon that is connected, or was last

	mu       sync.Mutex // held during a call
	link     *stateLink // the goroutine of follow changes it, with mu held
	requests [mostReads]rdma.SendRequest
	sges     [mostReads]rdma.SGE
	done     [mostReads]rdma.WorkCompletion
	cause    error // why nothing can be read; nil: it can
	told     bool  // a call has returned cause
	followed bool  // the next connection is there, and one call is to return cause

	conflicts   atomic.Uint64
	connections atomic.Uint64
	cancel      context.CancelFunc // ends follow; nil: it does not run
	following   sync.WaitGroup
}

// mostReads is the number of READs in a batch.
const mostReads = 2

// State connects to a daemon that lets peers read a state. A name must lead somewhere before ctx ends. The caller closes
// the result.
func (k *Client) State(ctx context.Context, c StateConfig) (*State, error) {
	at, err := where{address: c.Address, flow: c.State, peer: c.Peer, state: true}.find(k.config.Names)
	if err != nil {
		return nil, fmt.Errorf("read state %v: %w", at, err)
	}
	s := &State{client: k, where: at, book: k.region.NewBook("state " + at.flow), local: k.endpoint.Memory}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("read state %v: %w", at, err), s.Close())
	}
	return s, nil
}

func (s *State) open(ctx context.Context) (err error) {
	if s.hands, err = s.book.NewHolder(umem.OwnerRDMA, "state "+s.where.flow); err != nil {
		return err
	}
	if err := s.take(frameSize); err != nil {
		return err
	}
	l, err := s.dial(ctx)
	if err != nil {
		return err
	}
	if err := s.meet(l); err != nil { // nobody else has s yet
		return err
	}
	if s.where.places != nil {
		ctx, cancel := context.WithCancel(context.Background())
		s.cancel = cancel
		s.following.Go(func() { s.follow(ctx) })
	}
	return nil
}

// take takes the memory where READs land.
func (s *State) take(bytes uint32) error {
	one := []umem.Frame{{}}
	take, what := s.hands.Take, "frame: make Config.Memory larger"
	if bytes > frameSize {
		take, what = s.hands.TakeExtents, "extent: make Config.Extents larger"
	}
	if take(one) == 0 {
		return fmt.Errorf("the region has no free %s", what)
	}
	if one[0].Len < bytes {
		s.hands.Give(one)
		return fmt.Errorf("objects of the state have %d bytes, and an extent %d: make Config.Extent larger", bytes, one[0].Len)
	}
	if s.frame.Len > 0 {
		s.hands.Give([]umem.Frame{s.frame})
	}
	s.frame = one[0]
	return nil
}

// bytes returns the first bytes of the memory where READs land.
func (s *State) bytes(n uint64) []byte { return s.client.region.At(s.frame.Addr, n) }

// read is a part of the state's memory.
type read struct {
	at     uint64
	length uint32
}

// read is get for a call, which returns the error.
func (s *State) read(parts ...read) error {
	if err := s.get(parts...); err != nil {
		return s.fail(err)
	}
	return nil
}

// get reads parts into the memory where READs land, one behind the other, in one batch, and waits for them.
func (s *State) get(parts ...read) error {
	l, to := s.link, s.local.Addr()+s.frame.Addr
	for i, p := range parts {
		s.requests[i] = rdma.SendRequest{ID: uint64(i), Op: rdma.Read, Flags: rdma.Signaled, SGEs: 1, RemoteAddr: l.grant.Addr + p.at, RKey: l.grant.RKey}
		s.sges[i] = rdma.SGE{Addr: to, Length: p.length, LKey: s.local.LKey()}
		to += uint64(p.length)
	}
	if _, err := l.pair.PostSend(s.requests[:len(parts)], s.sges[:len(parts)]); err != nil {
		return err
	}
	return s.wait(len(parts))
}

// How a call waits: it polls for a while, and then sleeps between polls.
const (
	readSpin = 20 * time.Microsecond
	readTime = 30 * time.Second // the device gives up long before
)

// wait waits for the completions of READs.
func (s *State) wait(n int) error {
	var begun time.Time
	for n > 0 {
		got, err := s.link.sent.Spin(s.done[:], readSpin)
		for i := range s.done[:got] {
			err = errors.Join(err, s.done[i].Err())
		}
		if err != nil {
			return err
		}
		if n -= got; n == 0 || got > 0 {
			continue
		}
		if gone := s.link.gone(); gone != nil {
			return gone
		}
		switch now := time.Now(); {
		case begun.IsZero():
			begun = now
		case now.Sub(begun) > readTime:
			return errors.New("the device does not complete a READ")
		}
		if !s.client.config.Spin {
			sleep(readSpin)
		}
	}
	return nil
}

// Objects returns the number of objects; 0: the state has keys or words.
func (s *State) Objects() uint64 {
	h := s.head.Load()
	if h.Kind != wire.Objects {
		return 0
	}
	return h.Places
}

// Room returns the longest payload of an object, or of a key's value.
func (s *State) Room() int {
	h := s.head.Load()
	if h.Kind == wire.Keys {
		return wire.MaxKeyValue - 1
	}
	return int(h.Room)
}

// Get copies the payload of an object into dst. The version goes up with each write of the object.
func (s *State) Get(object uint64, dst []byte) (n int, version uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(); err != nil {
		return 0, 0, err
	}
	h := s.head.Load()
	switch {
	case h.Kind != wire.Objects:
		return 0, 0, ErrKind
	case object >= h.Places:
		return 0, 0, ErrObject
	}
	for range wire.Tries {
		if err := s.read(read{h.At(object), h.Stride}); err != nil {
			return 0, 0, err
		}
		payload, version, o := wire.CheckObject(s.bytes(uint64(h.Stride)))
		switch {
		case o == wire.Torn:
			s.conflicts.Add(1)
			continue
		case len(payload) > len(dst):
			return 0, version, ErrShort
		}
		return copy(dst, payload), version, o.Err()
	}
	return 0, 0, ErrAgain
}

// Lookup copies the value of a key into dst. It reads the key's first bucket, where most keys are, and if the key is not
// there both buckets in one batch. It reads them again before it believes that the key is in neither.
func (s *State) Lookup(key, dst []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(); err != nil {
		return 0, err
	}
	h := s.head.Load()
	switch {
	case h.Kind != wire.Keys:
		return 0, ErrKind
	case len(key) == 0 || len(key) > wire.MaxKeyValue:
		return 0, ErrKey
	}
	i, k := h.Buckets(key)
	parts := [mostReads]read{{h.At(i), wire.BucketLen}, {h.At(k), wire.BucketLen}}
	for range wire.Tries {
		value, o, err := s.lookup(&parts, key)
		switch {
		case err != nil:
			return 0, err
		case o == wire.Torn:
			s.conflicts.Add(1)
			continue
		case len(value) > len(dst):
			return 0, ErrShort
		}
		return copy(dst, value), o.Err()
	}
	return 0, ErrAgain
}

// lookup looks once.
func (s *State) lookup(parts *[mostReads]read, key []byte) (value []byte, o wire.Outcome, err error) {
	if err := s.read(parts[0]); err != nil {
		return nil, 0, err
	}
	b := s.bytes(4 * wire.BucketLen)
	if value, _, o := wire.CheckBucket(b[:wire.BucketLen], key); o != wire.Absent {
		return value, o, nil
	}
	if err := s.read(parts[:]...); err != nil {
		return nil, 0, err
	}
	torn := false
	for n := range parts {
		value, _, o := wire.CheckBucket(b[n*wire.BucketLen:(n+1)*wire.BucketLen], key)
		if o == wire.Have {
			return value, o, nil
		}
		torn = torn || o == wire.Torn
	}
	if torn {
		return nil, wire.Torn, nil
	}
	copy(b[2*wire.BucketLen:], b[:2*wire.BucketLen]) // the second look lands in front of the first
	if err := s.read(parts[:]...); err != nil {
		return nil, 0, err
	}
	value, o = wire.CheckPairs(b, key)
	return value, o, nil
}

// Word returns a word.
func (s *State) Word(n uint64) (uint64, error) { return s.onWord(rdma.Read, n, 0, 0) }

// FetchAdd adds to a word, and returns what it was before. It is atomic towards all other operations of peers on the
// state, since one device executes them. After an error it may have been executed or not.
func (s *State) FetchAdd(n, add uint64) (before uint64, err error) {
	return s.onWord(rdma.FetchAdd, n, add, 0)
}

// CompareSwap writes a word if it is old, and returns what it was before: it was written if that is old. It is atomic
// as FetchAdd is. After an error it may have been executed or not.
func (s *State) CompareSwap(n, old, swap uint64) (before uint64, err error) {
	return s.onWord(rdma.CompareSwap, n, old, swap)
}

// onWord executes an operation on a word, and returns what the word was before.
func (s *State) onWord(op rdma.Op, n, compare, swap uint64) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(); err != nil {
		return 0, err
	}
	h, words := s.head.Load(), &s.link.words
	switch {
	case h.Kind != wire.Words:
		return 0, ErrKind
	case n >= h.Places:
		return 0, ErrWord
	}
	s.requests[0] = rdma.SendRequest{Op: op, Flags: rdma.Signaled, SGEs: 1, RemoteAddr: words.Addr + n*uint64(h.Stride), RKey: words.RKey, Compare: compare, Swap: swap}
	s.sges[0] = rdma.SGE{Addr: s.local.Addr() + s.frame.Addr, Length: wire.WordLen, LKey: s.local.LKey()}
	if _, err := s.link.pair.PostSend(s.requests[:1], s.sges[:1]); err != nil {
		return 0, s.fail(err)
	}
	if err := s.wait(1); err != nil {
		return 0, s.fail(err)
	}
	return binary.NativeEndian.Uint64(s.bytes(wire.WordLen)), nil
}

// Position returns the position of the last update. What is read afterwards has at least the updates up to it. run
// differs each time when the state begins empty, as it does with the daemon.
func (s *State) Position() (position, run uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.check(); err != nil {
		return 0, 0, err
	}
	for range wire.Tries {
		if err := s.read(read{0, wire.StateHeadUsed}); err != nil {
			return 0, 0, err
		}
		if m, o := wire.CheckMark(s.bytes(wire.StateHeadUsed)); o == wire.Have {
			return m.Position, s.head.Load().Run, nil
		}
		s.conflicts.Add(1)
	}
	return 0, 0, ErrAgain
}

// Conflicts returns how often this reader looked again because the daemon wrote meanwhile.
func (s *State) Conflicts() uint64 { return s.conflicts.Load() }

// Connections returns how many connections there were so far. There is more than one only with StateConfig.Peer.
func (s *State) Connections() uint64 { return s.connections.Load() }

// Close ends the connection and gives the memory back. After an error it may be called again.
func (s *State) Close() error {
	if s.cancel != nil {
		s.cancel()
		s.following.Wait()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cause, s.followed = errClosed, false
	if s.link != nil { // no READ lands any more
		if err := s.link.close(); err != nil {
			return err
		}
	}
	if s.hands != nil {
		s.hands.Close()
		s.hands = nil
	}
	return errors.Join(s.book.Close(), s.where.close())
}
