//go:build verbs && cgo

package verbs

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// life is that of a thing made from a device: what it was made in and from stays until it
// is closed. Its methods may be called from any goroutine. Who holds the lock of a thing may
// take those of its parts, not the other way round.
type life struct {
	mu     sync.Mutex
	closed bool
	parts  []*life // it was made in and from
	users  map[*life]bool
	name   atomic.Pointer[string] // for people
}

// begin has the things that this one is about to be made in and from stay.
func (l *life) begin(name string, parts ...*life) error {
	l.named(name)
	for _, p := range parts {
		if err := p.adopt(l); err != nil {
			l.leave()
			return fmt.Errorf("make %s: %w", name, err)
		}
		l.parts = append(l.parts, p)
	}
	return nil
}

func (l *life) named(name string) { l.name.Store(&name) }

func (l *life) String() string { return *l.name.Load() }

func (l *life) adopt(user *life) error {
	return l.whileOpen(func() error {
		if l.users == nil {
			l.users = make(map[*life]bool)
		}
		l.users[user] = true
		return nil
	})
}

// leave lets the things go that this one was made in and from.
func (l *life) leave() {
	for _, p := range l.parts {
		p.drop(l)
	}
	l.parts = nil
}

func (l *life) drop(user *life) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.users, user)
}

// whileOpen calls f while the thing is not closed, and cannot be.
func (l *life) whileOpen(f func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return l.gone()
	}
	return f()
}

func (l *life) gone() error { return fmt.Errorf("%v is closed", l) }

// end closes the thing by destroy, once, and not while something uses it.
func (l *life) end(destroy func() error) error {
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
	l.leave()
	return nil
}

func (l *life) usedBy() (names []string) {
	for user := range l.users {
		names = append(names, user.String())
	}
	slices.Sort(names)
	return names
}
