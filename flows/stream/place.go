package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Place is where a receiver is, which can change. Any goroutine may use it.
type Place interface {
	// Addresses returns where the receiver is, the best address first, and a channel that is closed when that may have
	// changed. The error says why there is none; the channel then is not nil either.
	Addresses() (addresses []string, changed <-chan struct{}, err error)
	// Name is the name that the receiver's certificate must have, with TLS.
	Name() string
}

// errElsewhere ends a connection, or an attempt, because the receiver is at another address now.
var errElsewhere = errors.New("the receiver has moved to another address")

// locate finds where the members are now. The error says why the one that is dialed next cannot be.
func (t *target) locate() error {
	var lacks error
	for i, p := range t.places {
		all, changed, err := p.Addresses()
		t.addresses[i] = ""
		if err == nil {
			t.addresses[i] = all[t.failures[i]%len(all)]
		}
		if i == t.at {
			t.changed, lacks = changed, err
		}
	}
	return lacks
}

// locate finds where the receiver is that is dialed next, unless a member has offered a connection.
func (s *Sender) locate() error {
	err := s.to.locate()
	if s.to.places != nil {
		at := s.to.address()
		s.stats.address.Store(&at)
	}
	if s.taken != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the receiver: %w", err)
	}
	return nil
}

// address returns where the receiver is, for the status.
func (s *Sender) address() string {
	if at := s.stats.address.Load(); at != nil {
		return *at
	}
	return s.config.Address
}

// stays returns a context that ends with errElsewhere when the member that the sender dials, or is connected to, is at
// another address. A member of which nothing is known any more stays where it is. The caller calls leave.
func (s *Sender) stays(ctx context.Context) (there context.Context, leave func()) {
	if s.to.places == nil {
		return ctx, func() {}
	}
	return Stay(ctx, s.to.places[s.to.at], s.to.address())
}

// Stay returns a context that ends, and [Left] then reports so, when a place is known and does not have an address any
// more. The caller calls leave.
func Stay(ctx context.Context, p Place, address string) (there context.Context, leave func()) {
	there, end := context.WithCancelCause(ctx)
	go func() {
		for {
			all, changed, err := p.Addresses()
			if err == nil && !slices.Contains(all, address) {
				end(errElsewhere)
				return
			}
			select {
			case <-changed:
			case <-there.Done():
				return
			}
		}
	}()
	return there, func() { end(context.Canceled) }
}

// Left reports whether a context of Stay has ended because the receiver is elsewhere.
func Left(there context.Context) bool { return errors.Is(context.Cause(there), errElsewhere) }

// elsewhere returns errElsewhere if that is why a connection has ended, or else err.
func elsewhere(there context.Context, err error) error {
	if Left(there) {
		return errElsewhere
	}
	return err
}
