package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
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

// StateConfig configures a State.
type StateConfig struct {
	Address string // where the daemon listens for readers of the state: host:port
	State   string // its name
}

// State reads a state of a daemon by RDMA READ. The daemon's processors take no part in that. It executes one call at a
// time; others wait. After an error of the connection every call returns that error, and the caller opens another State.
type State struct {
	client *Client
	config StateConfig
	book   *umem.Book
	hands  *umem.Holder
	frame  umem.Frame // where READs land; zero: none is taken
	local  rdma.MemoryRegion
	sent   rdma.CompletionQueue
	pair   rdma.QueuePair
	conn   *connect.Conn
	grant  connect.Grant // of the memory, or only of the head if there are words
	words  connect.Grant // of the words, if the state has any
	head   wire.StateHead

	mu       sync.Mutex // held during a call
	requests [2]rdma.SendRequest
	sges     [2]rdma.SGE
	done     [2]rdma.WorkCompletion
	cause    error // why nothing can be read any more

	conflicts atomic.Uint64
	gone      atomic.Pointer[error] // why the connection ended
	watcher   sync.WaitGroup
}

// State connects to a daemon that lets peers read a state. The caller closes the result.
func (k *Client) State(ctx context.Context, c StateConfig) (*State, error) {
	s := &State{client: k, config: c, book: k.region.NewBook("state " + c.State), local: k.endpoint.Memory}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("read state %s at %s: %w", c.State, c.Address, err), s.Close())
	}
	return s, nil
}

func (s *State) open(ctx context.Context) (err error) {
	k := s.client
	if s.hands, err = s.book.NewHolder(umem.OwnerRDMA, "state "+s.config.State); err != nil {
		return err
	}
	if err := s.take(frameSize); err != nil {
		return err
	}
	settings, err := k.endpoint.SettingsTo(ctx, s.config.Address)
	if err != nil {
		return err
	}
	if s.sent, err = k.device.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: len(s.requests)}); err != nil {
		return err
	}
	s.pair, err = k.endpoint.Domain.NewQueuePair(rdma.QueuePairConfig{Transport: rdma.RC, SendCQ: s.sent, ReceiveCQ: s.sent,
		SendDepth: len(s.requests), RecvDepth: 1, SendSGEs: 1, RecvSGEs: 1})
	if err != nil {
		return err
	}
	end := connect.End{Queue: s.pair, Settings: settings}
	if end.Parameters, err = connect.Prepare(k.device, s.pair, settings); err != nil {
		return err
	}
	hello := protocol.Hello{Role: protocol.RoleState, Flow: s.config.State}
	if end.Hello, err = hello.Append(nil); err != nil {
		return err
	}
	if s.conn, err = connect.Dial(ctx, s.config.Address, end, connect.Config{Credentials: k.config.Credentials}); err != nil {
		return err
	}
	s.watcher.Go(s.watch)
	return s.agree()
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

// agree checks what the daemon grants, and reads the head of the state.
func (s *State) agree() (err error) {
	h, err := protocol.ParseHello(s.conn.Remote().Hello)
	if err != nil {
		return err
	}
	if h.Role != protocol.RoleState {
		return fmt.Errorf("%w: the server's hello is not that of one that has a state", protocol.BadKind)
	}
	if s.grant, err = s.conn.Remote().Grant("state"); err != nil {
		return err
	}
	if s.grant.Access != rdma.RemoteRead || s.grant.Length < wire.StateHeadLen {
		return fmt.Errorf("the server grants %d bytes with %v, which is no state", s.grant.Length, s.grant.Access)
	}
	if err := s.read(read{0, wire.StateHeadLen}); err != nil {
		return err
	}
	granted := s.grant.Length
	if s.words, err = s.conn.Remote().Grant("words"); err == nil {
		granted += min(s.words.Length, math.MaxInt64)
	}
	if s.head, err = wire.ParseStateHead(s.bytes(wire.StateHeadLen), granted); err != nil {
		return err
	}
	if s.head.Kind != wire.Words && s.head.Len() > s.grant.Length || s.head.Kind == wire.Words && s.words.Access != rdma.RemoteRead|rdma.RemoteAtomic {
		return fmt.Errorf("the server grants %d bytes of a state of %d, and words with %v", s.grant.Length, s.head.Len(), s.words.Access)
	}
	if s.head.Stride > frameSize {
		return s.take(s.head.Stride)
	}
	return nil
}

// watch waits for the end of the connection, and records the cause: the server's last message, or the error.
func (s *State) watch() {
	var said error
	for {
		text, err := s.conn.Receive()
		switch {
		case err == nil:
			said = fmt.Errorf("the server ends it: %q", text)
			continue
		case said != nil:
			err = said
		case errors.Is(err, io.EOF):
			err = errors.New("the server closed the connection")
		}
		s.gone.Store(&err)
		return
	}
}

// bytes returns the first bytes of the memory where READs land.
func (s *State) bytes(n uint64) []byte { return s.client.region.At(s.frame.Addr, n) }

// read is a part of the state's memory.
type read struct {
	at     uint64
	length uint32
}

// read reads parts into the memory where READs land, one behind the other, in one batch, and waits for them.
func (s *State) read(parts ...read) error {
	if s.cause != nil {
		return s.cause
	}
	to := s.local.Addr() + s.frame.Addr
	for i, p := range parts {
		s.requests[i] = rdma.SendRequest{ID: uint64(i), Op: rdma.Read, Flags: rdma.Signaled, SGEs: 1, RemoteAddr: s.grant.Addr + p.at, RKey: s.grant.RKey}
		s.sges[i] = rdma.SGE{Addr: to, Length: p.length, LKey: s.local.LKey()}
		to += uint64(p.length)
	}
	if _, err := s.pair.PostSend(s.requests[:len(parts)], s.sges[:len(parts)]); err != nil {
		return s.fail(err)
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
		got, err := s.sent.Spin(s.done[:], readSpin)
		for i := range s.done[:got] {
			err = errors.Join(err, s.done[i].Err())
		}
		if err != nil {
			return s.fail(err)
		}
		if n -= got; n == 0 || got > 0 {
			continue
		}
		if gone := s.gone.Load(); gone != nil {
			return s.fail(*gone)
		}
		switch now := time.Now(); {
		case begun.IsZero():
			begun = now
		case now.Sub(begun) > readTime:
			return s.fail(errors.New("the device does not complete a READ"))
		}
		if !s.client.config.Spin {
			sleep(readSpin)
		}
	}
	return nil
}

// fail notes why nothing can be read any more.
func (s *State) fail(err error) error {
	if gone := s.gone.Load(); gone != nil && !errors.Is(err, *gone) {
		err = fmt.Errorf("%w (%w)", *gone, err)
	}
	s.cause = fmt.Errorf("read state %s at %s: %w", s.config.State, s.config.Address, err)
	return s.cause
}

// Objects returns the number of objects; 0: the state has keys.
func (s *State) Objects() uint64 {
	if s.head.Kind != wire.Objects {
		return 0
	}
	return s.head.Places
}

// Room returns the longest payload of an object, or of a key's value.
func (s *State) Room() int {
	if s.head.Kind == wire.Keys {
		return wire.MaxKeyValue - 1
	}
	return int(s.head.Room)
}

// Get copies the payload of an object into dst. The version goes up with each write of the object.
func (s *State) Get(object uint64, dst []byte) (n int, version uint64, err error) {
	switch {
	case s.head.Kind != wire.Objects:
		return 0, 0, ErrKind
	case object >= s.head.Places:
		return 0, 0, ErrObject
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for range wire.Tries {
		if err := s.read(read{s.head.At(object), s.head.Stride}); err != nil {
			return 0, 0, err
		}
		payload, version, o := wire.CheckObject(s.bytes(uint64(s.head.Stride)))
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
	switch {
	case s.head.Kind != wire.Keys:
		return 0, ErrKind
	case len(key) == 0 || len(key) > wire.MaxKeyValue:
		return 0, ErrKey
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i, k := s.head.Buckets(key)
	parts := [2]read{{s.head.At(i), wire.BucketLen}, {s.head.At(k), wire.BucketLen}}
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
func (s *State) lookup(parts *[2]read, key []byte) (value []byte, o wire.Outcome, err error) {
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
	switch {
	case s.head.Kind != wire.Words:
		return 0, ErrKind
	case n >= s.head.Places:
		return 0, ErrWord
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil {
		return 0, s.cause
	}
	s.requests[0] = rdma.SendRequest{Op: op, Flags: rdma.Signaled, SGEs: 1, RemoteAddr: s.words.Addr + n*uint64(s.head.Stride), RKey: s.words.RKey, Compare: compare, Swap: swap}
	s.sges[0] = rdma.SGE{Addr: s.local.Addr() + s.frame.Addr, Length: wire.WordLen, LKey: s.local.LKey()}
	if _, err := s.pair.PostSend(s.requests[:1], s.sges[:1]); err != nil {
		return 0, s.fail(err)
	}
	if err := s.wait(1); err != nil {
		return 0, err
	}
	return binary.NativeEndian.Uint64(s.bytes(wire.WordLen)), nil
}

// Position returns the position of the last update. What is read afterwards has at least the updates up to it. run
// differs each time when the state begins empty, as it does with the daemon.
func (s *State) Position() (position, run uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range wire.Tries {
		if err := s.read(read{0, wire.StateHeadUsed}); err != nil {
			return 0, 0, err
		}
		if m, o := wire.CheckMark(s.bytes(wire.StateHeadUsed)); o == wire.Have {
			return m.Position, s.head.Run, nil
		}
		s.conflicts.Add(1)
	}
	return 0, 0, ErrAgain
}

// Conflicts returns how often this reader looked again because the daemon wrote meanwhile.
func (s *State) Conflicts() uint64 { return s.conflicts.Load() }

// Close ends the connection and gives the memory back. After an error it may be called again.
func (s *State) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.cause = errClosed
	}
	if s.pair != nil { // no READ lands any more
		if err := s.pair.Close(); err != nil {
			return err
		}
		s.pair = nil
	}
	var errs []error
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
		s.watcher.Wait()
		s.conn = nil
	}
	if s.sent != nil {
		if err := s.sent.Close(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		s.sent = nil
	}
	if s.hands != nil {
		s.hands.Close()
		s.hands = nil
	}
	return errors.Join(append(errs, s.book.Close())...)
}
