package attach

import (
	"fmt"
	"os"
	"slices"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/umem"
)

// StateConfig is a state that programs may read.
type StateConfig struct {
	Name    string
	Readers []string   // names of programs
	Part    *umem.Part // its memory, of which programs get a descriptor for reading only
	Size    uint64     // bytes of it that are in use
}

// StateReader is a program that may read a state.
type StateReader struct {
	Program string
	Reading bool // it has the state open
}

// StateReaders describes the programs that may read a state.
func (h *Hub) StateReaders(state string) (all []StateReader) {
	i := slices.IndexFunc(h.config.States, func(s StateConfig) bool { return s.Name == state })
	if i < 0 {
		return nil
	}
	for _, name := range h.config.States[i].Readers {
		p := h.programs[name]
		if p == nil {
			continue
		}
		p.mu.Lock()
		s := p.session
		reading := s != nil && slices.Contains(s.states, state)
		p.mu.Unlock()
		all = append(all, StateReader{name, reading})
	}
	return all
}

// openState gives a program the memory of a state, to be read. It costs the daemon nothing as long as the program has
// it, so nothing is closed. A refusal is no error.
func (s *session) openState(m *wire.Open) error {
	o, f, why := s.findState(m)
	if why != nil {
		s.program.ended(why.Reason)
		return s.write(why, false)
	}
	err := s.write(o, false, int(f.Fd()))
	if err == nil {
		s.log.Info("a program has opened a state", "program", s.program.name, "state", m.Flow)
	}
	return err
}

func (s *session) findState(m *wire.Open) (*wire.Opened, *os.File, *wire.Refusal) {
	i := slices.IndexFunc(s.hub.config.States, func(c StateConfig) bool {
		return c.Name == m.Flow && slices.Contains(c.Readers, s.program.name)
	})
	if i < 0 {
		return nil, nil, &wire.Refusal{Reason: wire.NoSuchFlow, Text: fmt.Sprintf("there is no state %q in attach.states that program %q may read", m.Flow, s.program.name)}
	}
	c := &s.hub.config.States[i]
	s.program.mu.Lock()
	defer s.program.mu.Unlock()
	s.last++
	if !slices.Contains(s.states, c.Name) {
		s.states = append(s.states, c.Name)
	}
	return &wire.Opened{Port: s.last, Size: c.Size}, c.Part.File(), nil
}
