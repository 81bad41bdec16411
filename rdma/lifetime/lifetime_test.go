package lifetime_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma/lifetime"
)

func closeNothing() error { return nil }

func object(t *testing.T, name string, parents ...*lifetime.Object) *lifetime.Object {
	t.Helper()
	o := new(lifetime.Object)
	testenv.Must(t, o.Begin(name, parents...))
	return o
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if fmt.Sprint(err) != want {
		t.Errorf("the error is %v, not %s", err, want)
	}
}

// A parent is closed only after all objects that use it, and the error names them in order.
func TestParentsCloseLast(t *testing.T) {
	device := object(t, "device")
	queue, domain := object(t, "queue", device), object(t, "domain", device)
	pair := object(t, "pair", domain, queue, queue) // sends and receives complete on one queue
	wantError(t, device.Close(closeNothing), "close device: domain, queue must be closed before")
	wantError(t, queue.Close(closeNothing), "close queue: pair must be closed before")
	for _, o := range []*lifetime.Object{pair, queue, domain, device, device} {
		wantError(t, o.Close(closeNothing), "<nil>")
	}
	wantError(t, new(lifetime.Object).Begin("pair", domain), "make pair: domain is closed")
	wantError(t, device.WhileOpen(closeNothing), "device is closed")
}

// An object whose creation fails uses none of its parents.
func TestFailedBegin(t *testing.T) {
	open, closed := object(t, "open"), object(t, "closed")
	wantError(t, closed.Close(closeNothing), "<nil>")
	wantError(t, new(lifetime.Object).Begin("pair", open, closed), "make pair: closed is closed")
	wantError(t, open.Close(closeNothing), "<nil>")
}

// An object whose destruction fails stays open and keeps its parents.
func TestFailedClose(t *testing.T) {
	parent := object(t, "parent")
	o := object(t, "object", parent)
	busy := errors.New("busy")
	err := o.Close(func() error { return busy })
	wantError(t, err, "close object: busy")
	if !errors.Is(err, busy) {
		t.Error("the error does not wrap that of destroy")
	}
	wantError(t, o.WhileOpen(closeNothing), "<nil>")
	wantError(t, parent.Close(closeNothing), "close parent: object must be closed before")
	wantError(t, o.Close(closeNothing), "<nil>")
	wantError(t, parent.Close(closeNothing), "<nil>")
}

// A memory window moves from the queue pair that it was bound with to another.
func TestParentsChange(t *testing.T) {
	first, second := object(t, "first"), object(t, "second")
	window := object(t, "window", first)
	testenv.Must(t, window.WhileOpen(func() error { return window.AddParent(second) }))
	testenv.Must(t, window.WhileOpen(func() error { window.RemoveParent(first); return nil }))
	wantError(t, first.Close(closeNothing), "<nil>")
	wantError(t, second.Close(closeNothing), "close second: window must be closed before")
}

// When one thread makes an object and another closes its parent, exactly one of them succeeds.
func TestRace(t *testing.T) {
	for range 200 {
		parent := object(t, "parent")
		user := new(lifetime.Object)
		var made, closed error
		var w sync.WaitGroup
		w.Go(func() { made = user.Begin("user", parent) })
		w.Go(func() { closed = parent.Close(closeNothing) })
		w.Wait()
		if (made == nil) == (closed == nil) {
			t.Fatalf("making the user gives %v, and closing its parent %v", made, closed)
		}
	}
}
