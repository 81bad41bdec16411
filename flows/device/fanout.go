package device

import (
	"fmt"
	"sync"
)

// Fanouts are the groups in which packet sockets of a daemon divide the packets of an interface. The kernel
// chooses the number of a group when its first socket joins. The zero value is ready. Any goroutine may use it.
type Fanouts struct {
	mu  sync.Mutex // held while a socket joins or leaves
	all map[string]*fanout
}

type fanout struct {
	id      uint16
	members int
}

// Join has a socket join the group of a name. join gets the group's number, and whether the group exists. It
// returns the group's number.
func (o *Fanouts) Join(name string, join func(id uint16, exists bool) (uint16, error)) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	g := o.all[name]
	if g == nil {
		g = &fanout{}
	}
	id, err := join(g.id, g.members > 0)
	if err != nil {
		return fmt.Errorf("join fanout %s: %w", name, err)
	}
	g.id = id
	g.members++
	if o.all == nil {
		o.all = map[string]*fanout{}
	}
	o.all[name] = g
	return nil
}

// Leave records that a socket that has joined leaves the group. It calls leave, which closes the socket. No other
// socket joins meanwhile, because the number of a group is anybody's once its last socket is closed.
func (o *Fanouts) Leave(name string, leave func() error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if g := o.all[name]; g != nil {
		if g.members--; g.members == 0 {
			delete(o.all, name)
		}
	}
	return leave()
}
