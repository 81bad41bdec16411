package state

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/umem"
)

// Config is what a state has: either Objects and Room, or Keys, or Words.
type Config struct {
	Name    string
	Objects uint64
	Room    uint32 // bytes of an object
	Keys    uint64
	Words   uint64
}

// head returns the head of a state.
func (c *Config) head(run, seed uint64) wire.StateHead {
	switch {
	case c.Keys > 0:
		return wire.KeysHead(c.Keys, run, seed)
	case c.Words > 0:
		return wire.WordsHead(c.Words, run)
	}
	return wire.ObjectsHead(c.Objects, c.Room, run)
}

// Slice returns the slice of the region that a state needs. Its name is not one of a program.
func (c *Config) Slice() umem.SliceConfig {
	h := c.head(1, 1)
	return umem.SliceConfig{Name: "state " + c.Name, In: h.Len()}
}

// State is a state.
type State struct {
	config Config
	part   *umem.Part
	holder *umem.Holder // of the part's frames
	writer *wire.Writer
	using  sync.Mutex // held by the flow that updates it

	position      uint64 // of the last update
	updates       counter.Counter
	bytes         counter.Counter // of their payloads
	refused       [wire.UpdateReasons]counter.Counter
	shownPosition counter.Counter
	shownEntries  counter.Counter
}

// Stats describes a state.
type Stats struct {
	Config
	Bytes    uint64 // of its memory
	Run      uint64
	Position uint64 // of the last update that was applied or refused, since the daemon began
	Entries  uint64 // objects or keys that are there
	Updates  uint64 // applied
	Payload  uint64 // bytes of their payloads
	Refused  map[string]uint64
}

// Set has the states of a daemon.
type Set struct {
	book *umem.Book
	all  []*State
}

// Open makes the states, which begin empty, in the slices of a region. The caller closes the set after all flows and
// servers that use it.
func Open(r *umem.Region, states []Config) (*Set, error) {
	s := &Set{book: r.NewBook("states")}
	for _, c := range states {
		one, err := s.open(r, c)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open state %s: %w", c.Name, err), s.Close())
		}
		s.all = append(s.all, one)
	}
	return s, nil
}

func (s *Set) open(r *umem.Region, c Config) (*State, error) {
	config := c.Slice()
	slice := r.Slice(config.Name)
	if slice == nil || slice.In == nil || slice.In.Size() < config.In {
		return nil, errors.New("the region has no slice for it")
	}
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, fmt.Errorf("draw the number of this run: %w", err)
	}
	run, seed := binary.NativeEndian.Uint64(b[:])|1, binary.NativeEndian.Uint64(b[8:])
	holder, err := s.book.NewHolder(umem.OwnerAttached, "state "+c.Name)
	if err != nil {
		return nil, err
	}
	frames := make([]umem.Frame, slice.In.Size()/uint64(r.FrameSize()))
	if n := holder.TakeFrom(slice.In, frames); n < len(frames) {
		return nil, fmt.Errorf("its slice has %d of %d frames", n, len(frames))
	}
	s.book.Publish()
	memory := r.At(slice.In.Base(), config.In)
	w := wire.NewWriter(wire.NewState(memory, c.head(run, seed)), c.Keys)
	return &State{config: c, part: slice.In, holder: holder, writer: w}, nil
}

// Close gives the memory back.
func (s *Set) Close() error {
	for _, one := range s.all {
		one.holder.Close()
	}
	s.all = nil
	return s.book.Close()
}

// Find returns the state with a name, or nil. A nil Set has none.
func (s *Set) Find(name string) *State {
	if s == nil {
		return nil
	}
	for _, one := range s.all {
		if one.config.Name == name {
			return one
		}
	}
	return nil
}

// All lists the states.
func (s *Set) All() []*State {
	if s == nil {
		return nil
	}
	return s.all
}

// Name returns the name.
func (s *State) Name() string { return s.config.Name }

// Part returns the memory, which nobody else may write.
func (s *State) Part() *umem.Part { return s.part }

// Size returns how many bytes of the memory are in use.
func (s *State) Size() uint64 { return s.writer.Len() }

// Use gives the state to a flow. The error says that another one has it. The flow calls the result when it ends.
func (s *State) Use() (release func() error, err error) {
	if s.config.Words > 0 {
		return nil, fmt.Errorf("state %s has words, which peers change and no flow", s.config.Name)
	}
	if !s.using.TryLock() {
		return nil, fmt.Errorf("state %s is updated by another flow", s.config.Name)
	}
	return func() error { s.using.Unlock(); return nil }, nil
}

// Position returns the position of the last update. The flow that uses the state calls it.
func (s *State) Position() uint64 { return s.position }

// Apply applies an update. Another process may write the message meanwhile. It returns how many bytes of payload it has
// copied.
func (s *State) Apply(message []byte) (copied int) {
	n, why := s.writer.Apply(message)
	s.position++
	if why != wire.Applied {
		s.refused[why].Add(1)
		return 0
	}
	s.updates.Add(1)
	s.bytes.Add(uint64(n))
	return n
}

// Update is an update with its position in a log.
type Update struct {
	Position uint64
	Stamp    uint64 // when the log got it: nanoseconds since 1970
	Message  []byte
}

// Skip says that positions up to one have no update: the log does not have their records any more.
func (s *State) Skip(to uint64) { s.position = max(s.position, to) }

// Publish tells readers up to where updates are applied. The worker calls it once per batch.
func (s *State) Publish() {
	if s.position == s.shownPosition.Load() {
		return
	}
	s.writer.SetMark(wire.Mark{Position: s.position, Entries: s.writer.Entries()})
	s.shownPosition.Set(s.position)
	s.shownEntries.Set(s.writer.Entries())
}

// Refused returns how many updates were refused, by each reason.
func (s *State) Refused() map[string]uint64 {
	all := make(map[string]uint64, wire.UpdateReasons)
	for why := range wire.UpdateReasons {
		if why != wire.Applied {
			all[why.String()] = s.refused[why].Load()
		}
	}
	return all
}

// Stats describes the state.
func (s *State) Stats() Stats {
	return Stats{
		Config: s.config, Bytes: s.writer.Len(), Run: s.writer.Run, Position: s.shownPosition.Load(), Entries: s.shownEntries.Load(),
		Updates: s.updates.Load(), Payload: s.bytes.Load(), Refused: s.Refused(),
	}
}
