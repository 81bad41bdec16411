package cluster

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Names are the daemons that flows name, and where each was found last. An engine tells it, and flows ask it through
// places. The zero value is ready for use.
type Names struct {
	mu      sync.Mutex
	wanted  map[string]*known // also those that no flow uses any more
	change  chan struct{}     // closed when other names are wanted; nil: nobody waits
	refused map[Reason]uint64
	state   State
	static  map[string]*Record // of the configuration, by name; an engine finds the others
}

// known is what is known of a wanted daemon.
type known struct {
	users   int
	record  *Record // the last one that was accepted; nil: none yet
	text    []byte  // of it
	found   time.Time
	gone    time.Time // since when it is not registered; zero: it is
	refused string    // why the newest record is not in use; empty: it is
	changed chan struct{}
}

// State is how the engine is.
type State struct {
	Up         bool      // the registry answers
	Since      time.Time // of Up
	Error      string    // why it does not answer
	Lacks      string    // why this daemon is not registered though the registry answers; empty: it is, or not yet
	Answered   time.Time // when it answered last; zero: never
	Registered bool      // this daemon is
	Lease      time.Duration
	Taken      string            // the instance that has this daemon's name; empty: none has
	Counts     map[string]uint64 // of events, by name
}

// want adds a user of a daemon's name. drop removes one.
func (n *Names) want(name string) *known {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := n.wanted[name]
	if k == nil {
		k = &known{changed: make(chan struct{})}
		if n.wanted == nil {
			n.wanted = map[string]*known{}
		}
		n.wanted[name] = k
		if r := n.static[name]; r != nil {
			k.record, k.found = r, time.Now()
		}
	}
	if k.users++; k.users == 1 {
		n.tell()
	}
	return k
}

func (n *Names) drop(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if k := n.wanted[name]; k != nil {
		if k.users--; k.users == 0 {
			n.tell() // what is known stays: a flow that is started again may need it while the registry is away
		}
	}
}

// tell wakes the engine, with mu held.
func (n *Names) tell() {
	if n.change != nil {
		close(n.change)
		n.change = nil
	}
}

// Wanted returns the names that flows use and a registry must find, in order, and a channel that is closed when these change.
func (n *Names) Wanted() (names []string, change <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.change == nil {
		n.change = make(chan struct{})
	}
	for _, name := range n.used() {
		if n.static[name] == nil {
			names = append(names, name)
		}
	}
	return names, n.change
}

// used returns the names with users, in order, with mu held.
func (n *Names) used() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(n.wanted)) {
		if n.wanted[name].users > 0 {
			names = append(names, name)
		}
	}
	return names
}

// Found takes the record that is registered under a name. It returns a *Refusal if the record is refused, which is
// counted; the last good one then stays in use. Records of names that nobody wants are ignored.
func (n *Names) Found(name string, text []byte) error {
	r, err := Parse(name, text)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		if refusal, is := err.(*Refusal); is {
			if n.refused == nil {
				n.refused = map[Reason]uint64{}
			}
			n.refused[refusal.Reason]++
		}
	}
	k := n.wanted[name]
	if k == nil {
		return err
	}
	if err != nil {
		k.refused = err.Error()
		return err
	}
	k.gone, k.refused = time.Time{}, ""
	if k.record != nil && bytes.Equal(k.text, text) {
		return nil
	}
	k.record, k.text, k.found = r, bytes.Clone(text), time.Now()
	close(k.changed)
	k.changed = make(chan struct{})
	return nil
}

// Gone says that no daemon is registered under a name. Its last addresses stay in use.
func (n *Names) Gone(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if k := n.wanted[name]; k != nil && k.gone.IsZero() {
		k.gone, k.refused = time.Now(), ""
	}
}

// Update changes the state of the engine. update must not call methods of n.
func (n *Names) Update(update func(*State)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state.Counts == nil {
		n.state.Counts = map[string]uint64{}
	}
	update(&n.state)
}

// Name is what is known of a daemon that flows name.
type Name struct {
	Name    string
	Flows   []Flow    // that it had when it was found last
	Version string    // of its program
	Found   time.Time // when its record came; zero: never
	Gone    time.Time // since when it is not registered; zero: it is
	Refused string    // why the newest record is not in use; empty: it is
}

// Status returns how the engine is, what is known of each name in use, and how many records were refused.
func (n *Names) Status() (s State, names []Name, refused map[Reason]uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, refused = n.state, map[Reason]uint64{}
	s.Counts = maps.Clone(s.Counts)
	maps.Copy(refused, n.refused)
	for _, name := range n.used() {
		k := n.wanted[name]
		one := Name{Name: name, Found: k.found, Gone: k.gone, Refused: k.refused}
		if k.record != nil {
			one.Flows, one.Version = k.record.Flows, k.record.Version
		}
		names = append(names, one)
	}
	return s, names, refused
}

// Place is where a flow, or a state, of another daemon is. Any goroutine may use it.
type Place struct {
	names      *Names
	known      *known
	name, flow string
	state      bool // flow is the name of a state
	close      sync.Once
}

// Place returns the place of a peer, NAME/FLOW. The caller closes it.
func (n *Names) Place(peer string) (*Place, error) {
	name, flow, err := ParsePeer(peer)
	if err != nil {
		return nil, err
	}
	return &Place{names: n, known: n.want(name), name: name, flow: flow}, nil
}

// StatePlace returns the place of a state that peers may read, NAME/STATE. The caller closes it.
func (n *Names) StatePlace(peer string) (*Place, error) {
	p, err := n.Place(peer)
	if err == nil {
		p.state = true
	}
	return p, err
}

// Name is the name of the daemon, which its certificate has.
func (p *Place) Name() string { return p.name }

// Addresses returns where the flow or state is, the best address first, and a channel that is closed when that may have
// changed. The error says why there is none. Addresses of a daemon that is not registered any more are its last ones.
func (p *Place) Addresses() (addresses []string, changed <-chan struct{}, err error) {
	f, changed, err := p.find()
	switch {
	case err != nil:
		return nil, changed, err
	case len(f.Addresses) == 0:
		return nil, changed, fmt.Errorf("flow %s of daemon %s takes no connections: it is a witness", p.flow, p.name)
	}
	return f.Addresses, changed, nil
}

// Group is Addresses for the members of the flow's group: where it talks with them.
func (p *Place) Group() (addresses []string, changed <-chan struct{}, err error) {
	f, changed, err := p.find()
	switch {
	case err != nil:
		return nil, changed, err
	case len(f.Group) == 0:
		return nil, changed, fmt.Errorf("flow %s of daemon %s is not registered as a member of a group (its group needs listen: with a fixed port)", p.flow, p.name)
	}
	return f.Group, changed, nil
}

// find returns what is known of the flow or state.
func (p *Place) find() (f *Flow, changed <-chan struct{}, err error) {
	p.names.mu.Lock()
	defer p.names.mu.Unlock()
	k := p.known
	switch {
	case k.record == nil && k.refused != "":
		return nil, k.changed, fmt.Errorf("the record of daemon %s is refused: %s", p.name, k.refused)
	case k.record == nil && !p.names.state.Up:
		return nil, k.changed, fmt.Errorf("where daemon %s is, is not known: the registry does not answer (unifiedd cluster status)", p.name)
	case k.record == nil:
		return nil, k.changed, fmt.Errorf("no daemon is registered as %s (unifiedd cluster status shows all)", p.name)
	}
	if p.state {
		if f = find(k.record.States, p.flow); f == nil {
			return nil, k.changed, fmt.Errorf("daemon %s has no state %s that peers may read", p.name, p.flow)
		}
		return f, k.changed, nil
	}
	if f = find(k.record.Flows, p.flow); f == nil {
		return nil, k.changed, fmt.Errorf("daemon %s has no flow %s that takes connections", p.name, p.flow)
	}
	return f, k.changed, nil
}

// Close ends the use of the name. It may be called again.
func (p *Place) Close() error {
	p.close.Do(func() { p.names.drop(p.name) })
	return nil
}
