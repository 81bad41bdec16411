//go:build verbs && cgo

package verbs

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// resource is that of a thing made from a device: what it was made in and from stays until it
// is closed. Its methods may be called from any goroutine. Who holds the lock of a thing may
// take those of its parts, not the other way round.
type resource struct {
	mu     sync.Mutex
	closed bool
	parts  []*resource // it was made in and from
	users  map[*resource]bool
	name   atomic.Pointer[string] // for people
}

// begin has the things that this one is about to be made in and from stay.
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
		p.drop(l)
	}
	l.parts = nil
}

func (l *resource) drop(user *resource) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.users, user)
}

// whileOpen calls f while the thing is not closed, and cannot be.
func (l *resource) whileOpen(f func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return l.gone()
	}
	return f()
}

func (l *resource) gone() error { return fmt.Errorf("%v is closed", l) }

// end closes the thing by destroy, once, and not while something uses it.
func (l *resource) end(destroy func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	if names := l.usedBy(); len(names) > 0 {
		return fmt.Errorf("close %v: %s must be closed before", l, strings.Join(names, ", "))
	}
	if err := destroy(); err != nil {
		return err
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
