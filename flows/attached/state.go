package attached

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
)

// The errors of a State, besides ErrGone.
var (
	ErrAgain    = wire.ErrAgain    // it was being written, a hundred times
	ErrNotFound = wire.ErrNotFound // there is no such key, or the object has no payload
	ErrShort    = wire.ErrShort    // dst is too short
	ErrKind     = wire.ErrKind     // Get of a state that has keys, or Lookup of one that has objects
	ErrObject   = wire.ErrObject   // the state has no object of that number
	ErrKey      = wire.ErrKey      // a key has 1 to 120 bytes
	ErrWord     = wire.ErrWord     // the state has no word of that number
)

// State reads memory that the daemon writes, as messages of a flow tell it. It copies what it reads, and does not
// allocate or make a system call. It belongs to one goroutine at a time.
type State struct {
	client    *Client
	name      string
	link      *link
	memory    []byte
	view      *wire.State
	conflicts uint64
}

// State opens a state of which this program is a reader.
func (k *Client) State(name string) (*State, error) {
	k.mu.Lock()
	l := k.link
	k.mu.Unlock()
	s := &State{client: k, name: name}
	err := ErrGone
	if l != nil && l.alive() {
		err = s.openOn(l)
	}
	if err != nil {
		return nil, fmt.Errorf("open state %s: %w", name, err)
	}
	return s, nil
}

// openOn maps the memory that comes over a connection.
func (s *State) openOn(l *link) error {
	got, err := s.client.open(l, &wire.Open{Flow: s.name, Role: wire.Look})
	if err != nil {
		return err
	}
	defer closeFiles(got.files)
	if len(got.files) != 1 || got.Size < wire.StateHeadLen || got.Size > 1<<40 {
		return wire.ErrMessage
	}
	var st unix.Stat_t // the memory may be on huge pages, which are mapped whole
	if err := unix.Fstat(int(got.files[0].Fd()), &st); err != nil || st.Size < int64(got.Size) {
		return fmt.Errorf("%w: a state of %d bytes has %d", errors.Join(wire.ErrMessage, err), got.Size, st.Size)
	}
	b, err := unix.Mmap(int(got.files[0].Fd()), 0, int(st.Size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map a state: %w", err)
	}
	view, err := wire.ReadState(b[:got.Size])
	if err != nil {
		_ = unix.Munmap(b) // it is mapped
		return err
	}
	s.unmap()
	s.link, s.memory, s.view = l, b, view
	return nil
}

func (s *State) unmap() {
	if s.memory != nil {
		_ = unix.Munmap(s.memory) // it is mapped
	}
	s.link, s.memory, s.view = nil, nil, nil
}

// ready returns ErrGone if what the memory has is not kept up to date any more.
func (s *State) ready(kind wire.StateKind) error {
	switch {
	case s.link == nil || !s.link.alive():
		return ErrGone
	case s.view.Kind != kind:
		return ErrKind
	}
	return nil
}

// Objects returns the number of objects; 0: the state has keys or words.
func (s *State) Objects() uint64 {
	if s.view == nil || s.view.Kind != wire.Objects {
		return 0
	}
	return s.view.Places
}

// Words returns the number of words; 0: the state has objects or keys.
func (s *State) Words() uint64 {
	if s.view == nil || s.view.Kind != wire.Words {
		return 0
	}
	return s.view.Places
}

// Room returns the longest payload of an object, or of a key's value; of a word it is 8.
func (s *State) Room() int {
	switch {
	case s.view == nil:
		return 0
	case s.view.Kind == wire.Keys:
		return wire.MaxKeyValue - 1
	}
	return int(s.view.Room)
}

// Get copies the payload of an object into dst. The version goes up with each write of the object. The error is
// ErrAgain if the daemon wrote the object whenever Get looked; dst may then have anything.
func (s *State) Get(object uint64, dst []byte) (n int, version uint64, err error) {
	if err := s.ready(wire.Objects); err != nil {
		return 0, 0, err
	}
	if object >= s.view.Places {
		return 0, 0, ErrObject
	}
	for range wire.Tries {
		n, version, o := s.view.Get(object, dst)
		if o != wire.Torn {
			return n, version, o.Err()
		}
		s.conflicts++
	}
	return 0, 0, ErrAgain
}

// Lookup copies the value of a key into dst.
func (s *State) Lookup(key, dst []byte) (n int, err error) {
	if err := s.ready(wire.Keys); err != nil {
		return 0, err
	}
	if len(key) == 0 || len(key) > wire.MaxKeyValue {
		return 0, ErrKey
	}
	for range wire.Tries {
		n, _, o := s.view.Lookup(key, dst)
		if o != wire.Torn {
			return n, o.Err()
		}
		s.conflicts++
	}
	return 0, ErrAgain
}

// Word returns a word, as RDMA peers have left it.
func (s *State) Word(n uint64) (uint64, error) {
	if err := s.ready(wire.Words); err != nil {
		return 0, err
	}
	if n >= s.view.Places {
		return 0, ErrWord
	}
	return s.view.Word(n), nil
}

// Position returns the position of the last update. What is read afterwards has at least the updates up to it. run
// differs each time when the state begins empty, as it does with the daemon.
func (s *State) Position() (position, run uint64, err error) {
	if s.link == nil || !s.link.alive() {
		return 0, 0, ErrGone
	}
	for range wire.Tries {
		m, o := s.view.ReadMark()
		if o == wire.Have {
			return m.Position, s.view.Run, nil
		}
		s.conflicts++
	}
	return 0, 0, ErrAgain
}

// Conflicts returns how often this reader looked again because the daemon wrote meanwhile.
func (s *State) Conflicts() uint64 { return s.conflicts }

// Resume opens the state again after ErrGone. It waits until that succeeds or ctx ends.
func (s *State) Resume(ctx context.Context) error { return s.client.reopen(ctx, s.openOn) }

// Close unmaps the memory.
func (s *State) Close() error {
	s.unmap()
	return nil
}

// AppendPutObject appends a message that writes an object of a state, for a flow to: {state: NAME}.
func AppendPutObject(b []byte, object uint64, payload []byte) []byte {
	return wire.AppendPutObject(b, object, payload)
}

// AppendDeleteObject appends a message that removes the payload of an object.
func AppendDeleteObject(b []byte, object uint64) []byte { return wire.AppendDeleteObject(b, object) }

// AppendPutKey appends a message that writes the value of a key. Both have at most 120 bytes together.
func AppendPutKey(b, key, value []byte) []byte { return wire.AppendPutKey(b, key, value) }

// AppendDeleteKey appends a message that removes a key.
func AppendDeleteKey(b, key []byte) []byte { return wire.AppendDeleteKey(b, key) }
