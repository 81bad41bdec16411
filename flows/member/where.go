package member

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/unifiedd/unifiedd/flows/cluster"
	"github.com/unifiedd/unifiedd/flows/config"
	"github.com/unifiedd/unifiedd/flows/group/transport"
	"github.com/unifiedd/unifiedd/flows/replica"
)

// whereabouts knows where the members of a group are: at the addresses in the configuration, or, of those that it names
// as NAME/FLOW, where the resolver finds them. Any goroutine may call its methods.
type whereabouts struct {
	names *cluster.Names // nil: there is no resolver

	mu     sync.Mutex
	group  *config.Replicas
	places map[string]*cluster.Place // by NAME/FLOW, of the other members
	other  notice                    // another group is in use
}

// use makes these the members. It fails without a change.
func (w *whereabouts) use(g *config.Replicas) error {
	places, opened := map[string]*cluster.Place{}, []*cluster.Place(nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range g.Members {
		if r.Peer == "" || r.Name == g.Self {
			continue
		}
		if places[r.Peer] = w.places[r.Peer]; places[r.Peer] != nil {
			continue
		}
		p, err := w.place(r.Peer)
		if err != nil {
			for _, p := range opened {
				err = errors.Join(err, p.Close())
			}
			return fmt.Errorf("find member %s of group %s: %w", r.Name, g.Name, err)
		}
		places[r.Peer], opened = p, append(opened, p)
	}
	var err error
	for peer, p := range w.places {
		if places[peer] == nil {
			err = errors.Join(err, p.Close())
		}
	}
	w.group, w.places = g, places
	w.other.tell()
	return err
}

func (w *whereabouts) place(peer string) (*cluster.Place, error) {
	if w.names == nil {
		return nil, errors.New("nothing says where it is: add cluster.resolver")
	}
	return w.names.Place(peer)
}

// Close ends the use of the names.
func (w *whereabouts) Close() (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.places {
		err = errors.Join(err, p.Close())
	}
	w.places = nil
	return err
}

// peers returns where the members are now, and channels of which one is closed when that may have changed.
func (w *whereabouts) peers() (all []replica.Peer, changed []<-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed = append(changed, w.other.wait())
	for i := range w.group.Members {
		r := &w.group.Members[i]
		one := replica.Peer{Peer: transport.Peer{Number: w.group.NumberOf(i), Name: r.CertificateName()}, Witness: r.Witness}
		switch p := w.places[r.Peer]; {
		case p != nil:
			changed = append(changed, find(&one, p))
		case r.Peer == "":
			one.Addresses = []string{r.Address}
			if !r.Witness {
				one.Records = []string{r.Clients}
			}
			for _, p := range r.Paths {
				one.Addresses = append(one.Addresses, p.Address)
				if !r.Witness {
					one.Further = append(one.Further, p.Clients)
				}
			}
		}
		all = append(all, one)
	}
	return all, changed
}

// find completes a peer that the resolver finds, and returns a channel that is closed when it may have moved.
func find(to *replica.Peer, p *cluster.Place) (changed <-chan struct{}) {
	to.Host = p.Name()
	at, changed, err := p.Group()
	if err != nil {
		to.Lacks = err.Error()
		return changed
	}
	to.Addresses = at
	if !to.Witness {
		to.Records, _, err = p.Addresses() // of the same record, or of a newer one: then changed is closed
	}
	if err != nil {
		to.Addresses, to.Lacks = nil, err.Error()
	}
	return changed
}

// clients returns where clients reach a member; empty: it is not known.
func (w *whereabouts) clients(number uint32) string {
	all, _ := w.peers()
	for i := range all {
		if all[i].Number == number && len(all[i].Records) > 0 {
			return all[i].Records[0]
		}
	}
	return ""
}

// over returns where the records of a member come from over a path; empty: it is not known.
func (w *whereabouts) over(number uint32, path int) string {
	all, _ := w.peers()
	for i := range all {
		switch p := &all[i]; {
		case p.Number != number:
		case path == 0 && len(p.Records) > 0:
			return p.Records[0]
		case path > 0 && path <= len(p.Further):
			return p.Further[path-1]
		}
	}
	return ""
}

// followAgain is the time until the driver is told again where the members are, if it could not take that.
const followAgain = time.Second

// follow tells the driver where the members are, each time that this changes, until ctx ends.
func (w *whereabouts) follow(ctx context.Context, set func([]replica.Peer) error) {
	for ctx.Err() == nil {
		all, changed := w.peers()
		if err := set(all); err != nil { // it has ended, or waits for a disk
			pause(ctx, followAgain)
			continue
		}
		await(ctx, changed)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// await waits until one of the channels is closed, or ctx ends.
func await(ctx context.Context, changed []<-chan struct{}) {
	first, end := context.WithCancel(ctx)
	var all sync.WaitGroup
	for _, c := range changed {
		all.Go(func() {
			defer end()
			select {
			case <-c:
			case <-first.Done():
			}
		})
	}
	all.Wait()
	end()
}
