// Package lifetime makes verbs objects end in the right order. A queue pair is made in a protection
// domain and from completion queues. None of them may be closed while the queue pair uses it. The
// packages rdma/verbs and rdma/roce keep an Object in each of their verbs objects.
package lifetime

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Object is the lifetime of one verbs object. The zero value is open and has no name and no
// parents.
//
// Any goroutine may call the methods, except where they say otherwise. A thread that holds the lock
// of an object, in WhileOpen or Close, may call methods of the object's parents, but not of the
// objects that use it.
type Object struct {
	mu      sync.Mutex
	closed  bool
	name    atomic.Pointer[string]
	parents []*Object
	users   map[*Object]bool
}

// Begin names the object and makes it a user of its parents: they cannot be closed before it. If a
// parent is closed, Begin fails and the object uses none of them. It is called once, before any
// other thread has the object.
func (o *Object) Begin(name string, parents ...*Object) error {
	o.SetName(name)
	for _, p := range parents {
		if err := o.AddParent(p); err != nil {
			o.Release()
			return fmt.Errorf("make %s: %w", name, err)
		}
	}
	return nil
}

// SetName sets the name that errors give, for example "RC queue pair 17 of rxe0".
func (o *Object) SetName(name string) { o.name.Store(&name) }

// String returns the name.
func (o *Object) String() string { return *o.name.Load() }

// AddParent makes the object a user of p. It fails if p is closed. The caller is the only thread that has the object, or is in its
// WhileOpen.
func (o *Object) AddParent(p *Object) error {
	err := p.WhileOpen(func() error {
		if p.users == nil {
			p.users = make(map[*Object]bool)
		}
		p.users[o] = true
		return nil
	})
	if err == nil {
		o.parents = append(o.parents, p)
	}
	return err
}

// RemoveParent ends the use of p. The thread rule of AddParent holds.
func (o *Object) RemoveParent(p *Object) {
	o.parents = slices.DeleteFunc(o.parents, func(q *Object) bool { return q == p })
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.users, o)
}

// Release ends the use of all parents. It is for a caller that could not make its object after
// Begin. Close calls Release itself.
func (o *Object) Release() {
	for len(o.parents) > 0 {
		o.RemoveParent(o.parents[0])
	}
}

// WhileOpen calls f and holds the object's lock, so that no other thread closes the object. It
// fails if the object is closed.
func (o *Object) WhileOpen(f func() error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return o.ClosedError()
	}
	return f()
}

// ClosedError returns the error of a call to an object that is closed.
func (o *Object) ClosedError() error { return fmt.Errorf("%v is closed", o) }

// Close calls destroy and releases the parents. If the object is closed already, it does nothing.
// It fails if another object uses it, with an error that names that object, or if destroy fails,
// with an error that wraps the cause. The object then stays open.
func (o *Object) Close(destroy func() error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	if len(o.users) > 0 {
		return fmt.Errorf("close %v: %s must be closed before", o, strings.Join(o.userNames(), ", "))
	}
	if err := destroy(); err != nil {
		return fmt.Errorf("close %v: %w", o, err)
	}
	o.closed = true
	o.Release()
	return nil
}

func (o *Object) userNames() (names []string) {
	for user := range o.users {
		names = append(names, user.String())
	}
	slices.Sort(names)
	return names
}
