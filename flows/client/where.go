package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/unifiedd/unifiedd/flows/cluster"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

// The errors of what says where a flow is.
var (
	errTwice   = errors.New("the name in Peer says what that is and where: leave Address empty, and Flow or State")
	errNoNames = errors.New("nothing says where that is: set Config.Names")
)

// where says how a flow, or a state, is reached: by its address, or by its name.
type where struct {
	address, flow string
	others        []string
	peer          string           // NAME/FLOW
	state         bool             // flow is the name of a state, and peer is NAME/STATE
	places        []*cluster.Place // of peer, and then of the other members of its group
}

// find completes what the caller has said. The caller closes it.
func (w where) find(names *cluster.Names) (where, error) {
	switch {
	case w.peer == "":
		return w, nil
	case w.address != "" || w.flow != "":
		return w, errTwice
	case names == nil:
		return w, errNoNames
	}
	for _, peer := range append([]string{w.peer}, w.others...) {
		place := names.Place
		if w.state {
			place = names.StatePlace
		}
		p, err := place(peer)
		if err != nil {
			return w, errors.Join(err, w.close())
		}
		w.places = append(w.places, p)
	}
	_, w.flow, _ = cluster.ParsePeer(w.peer) // Place has parsed it
	w.others = nil
	return w, nil
}

// String describes the flow for errors.
func (w where) String() string {
	if w.peer != "" {
		return w.peer
	}
	return w.flow + " at " + w.address
}

// close ends the use of the names.
func (w where) close() (err error) {
	for _, p := range w.places {
		err = errors.Join(err, p.Close())
	}
	return err
}

// senders returns the places for a sender; nil: the addresses do not change.
func (w where) senders() (all []stream.Place) {
	for _, p := range w.places {
		all = append(all, p)
	}
	return all
}

// dial calls a function with the address of the flow, and with each further one until it succeeds. It waits until the
// name leads somewhere, or ctx ends. The context of the function ends when its address is not one of the flow any more.
func (w where) dial(ctx context.Context, c connect.Config, dial func(ctx context.Context, address string, c connect.Config) error) error {
	if w.places == nil {
		return dial(ctx, w.address, c)
	}
	c.ServerName = w.places[0].Name()
	for {
		all, changed, lacks := w.places[0].Addresses()
		var err error
		moved := false
		for _, address := range all {
			there, leave := stream.Stay(ctx, w.places[0], address)
			e := dial(there, address, c)
			moved = moved || stream.Left(there)
			leave()
			if e == nil {
				return nil
			}
			err = errors.Join(err, e)
		}
		switch {
		case moved:
			continue
		case lacks == nil:
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), lacks)
		}
	}
}
