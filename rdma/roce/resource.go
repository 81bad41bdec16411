package roce

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// resource is that of a thing made from a device: what it was made in and from stays until it is closed. Its methods may
// be called from any goroutine.
type resource struct {
	mu     sync.Mutex
	closed bool
	name   atomic.Pointer[string] // for people
	parts  []*resource            // it was made in and from
	users  map[*resource]bool
}

// begin has the things that this one is made in and from stay.
func (l *resource) begin(name string, parts ...*resource) error {
	l.named(name)
	for _, p := range parts {
		if err := p.retain(l); err != nil {
			l.release()
			return fmt.Errorf("make %s: %w", name, err)
		}
		l.parts = append(l.parts, p)
	}
	return nil
}

func (l *resource) named(name string) { l.name.Store(&name) }

func (l *resource) String() string { return *l.name.Load() }

func (l *resource) retain(user *resource) error {
	return l.whileOpen(func() error {
		if l.users == nil {
			l.users = make(map[*resource]bool)
		}
		l.users[user] = true
		return nil
	})
}

// release lets the things go that this one was made in and from.
func (l *resource) release() {
	for _, p := range l.parts {
		p.mu.Lock()
		delete(p.users, l)
		p.mu.Unlock()
	}
	l.parts = nil
}

// whileOpen calls f while the thing is not closed, and cannot be.
func (l *resource) whileOpen(f func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fmt.Errorf("%v is closed", l)
	}
	return f()
}

// end closes the thing by destroy, once, and not while something uses it.
func (l *resource) end(destroy func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	if len(l.users) > 0 {
		return fmt.Errorf("close %v: %s must be closed before", l, strings.Join(l.usedBy(), ", "))
	}
	if err := destroy(); err != nil {
		return fmt.Errorf("close %v: %w", l, err)
	}
	l.closed = true
	l.release()
	return nil
}

func (l *resource) usedBy() (names []string) {
	for user := range l.users {
		names = append(names, user.String())
	}
	slices.Sort(names)
	return names
}
