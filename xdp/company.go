package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/unifiedd/unifiedd/bpf"
)

// sharedInterface is what the Interfaces of one device have in common: the program, which asks their selections in turn,
// and the queues, of which each has sockets of its own.
type sharedInterface struct {
	mu        sync.Mutex   // held while one comes, goes, or changes its selection; after Interface.mu
	members   []*Interface // in the order in which their selections are asked
	programID uint32       // of the attached program
	gone      uint64       // packets that sockets of members who left have refused
}

// arrange has the program decide by the selections of the members that are asked; mu is held.
func (c *sharedInterface) arrange(program *bpf.Program) error {
	var all []bpf.Slotted
	for _, m := range c.members {
		if m.listens {
			all = append(all, bpf.Slotted{Seat: m.seat, Selection: m.selection})
		}
	}
	return program.Arrange(all)
}

// ask has the program ask for the selection, or no longer. Who has a device alone is always asked: without sockets
// nothing comes.
func (i *Interface) ask(on bool) error {
	c := i.company
	c.mu.Lock()
	defer c.mu.Unlock()
	if i.program == nil || i.listens == on || len(c.members) == 1 || !slices.Contains(c.members, i) {
		return nil
	}
	if !on {
		i.counted, _ = i.selected() // what is missing there is told as none
	}
	i.listens = on
	err := c.exchange(i)
	if err == nil || i.isGone() {
		return nil
	}
	i.listens = !on
	return fmt.Errorf("change who takes packets of %s: %w", i.Name(), err)
}

// isGone reports whether there is no such device any more, and so nothing to change.
func (i *Interface) isGone() bool {
	_, err := i.device.look()
	return errors.Is(err, ErrInterfaceGone)
}

// add puts a member where its rank says.
func (c *sharedInterface) add(m *Interface) {
	c.members = append(c.members, m)
	slices.SortStableFunc(c.members, func(a, b *Interface) int { return cmp.Compare(a.rank, b.rank) })
}

func (c *sharedInterface) remove(m *Interface) {
	c.members = slices.DeleteFunc(slices.Clone(c.members), func(other *Interface) bool { return other == m })
}

// seat is one that no member has, or -1.
func (c *sharedInterface) seat() int {
	for seat := range bpf.Seats {
		if !slices.ContainsFunc(c.members, func(m *Interface) bool { return m.seat == seat }) {
			return seat
		}
	}
	return -1
}

// refused is how many packets the sockets of all members, and of those that left, did not take.
func (c *sharedInterface) refused() (n uint64, err error) {
	n = c.gone
	for _, m := range c.members {
		one, err := m.refused()
		if err != nil {
			return n, err
		}
		n += one
	}
	return n, nil
}

// refused is how many packets the sockets did not take.
func (i *Interface) refused() (n uint64, err error) {
	for _, p := range i.ports {
		s, err := p.Stats()
		if err != nil {
			return n, err
		}
		ringFull, noFrames, tooLong := s.lost(i.granted)
		n += ringFull + noFrames + tooLong
	}
	return n, nil
}

// leave gives the seat back, and reports whether nobody is left.
func (i *Interface) leave() (last bool, err error) {
	c := i.company
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.members, i) {
		return len(c.members) == 0, nil
	}
	refused, err := i.refused()
	c.gone += refused
	if c.remove(i); len(c.members) == 0 || i.program == nil {
		return len(c.members) == 0, err
	}
	if !i.listens || i.isGone() {
		return false, err
	}
	return false, errors.Join(err, c.exchange(i))
}

// exchange arranges the selections anew, by way of one of the members; mu is held.
func (c *sharedInterface) exchange(i *Interface) error {
	if err := c.arrange(i.program); err != nil {
		return err
	}
	return i.noteProgram()
}

// Rank changes in which order the Interfaces of a device are asked whether they want a packet: by rising numbers, those beside each
// other as they came. On error the old order stays.
func (i *Interface) Rank(rank int) error {
	c := i.company
	c.mu.Lock()
	defer c.mu.Unlock()
	before, old := slices.Clone(c.members), i.rank
	i.rank = rank
	if !slices.Contains(c.members, i) {
		return nil
	}
	c.remove(i)
	c.add(i)
	if slices.Equal(before, c.members) || i.program == nil {
		return nil
	}
	if err := c.exchange(i); err != nil {
		i.rank, c.members = old, before
		return fmt.Errorf("change the order of who takes packets of %s: %w", i.Name(), err)
	}
	return nil
}
