package cluster

import (
	"reflect"
	"time"
)

// Static is where a flow or a state of a daemon is, as the configuration says.
type Static struct {
	Peer    string // NAME/FLOW, or NAME/STATE
	Address string // IP address and TCP port, or a host's name and a port; may be empty with Group or State
	Group   string // where the flow, a member of a group, talks with the others; empty: it is none
	State   string // where peers read the state; empty: Peer names a flow
}

// SetStatic says where daemons are by the configuration, which has been checked. Their names are not asked of a
// registry. alone says that there is none.
func (n *Names) SetStatic(all []Static, alone bool) {
	records := map[string]*Record{}
	for _, s := range all {
		name, flow, err := ParsePeer(s.Peer)
		if err != nil {
			continue // the configuration was checked
		}
		if records[name] == nil {
			records[name] = &Record{Name: name}
		}
		r := records[name]
		if s.State != "" {
			f := of(&r.States, flow)
			f.Addresses = append(f.Addresses, s.State)
		}
		if s.Address != "" {
			f := of(&r.Flows, flow)
			f.Addresses = append(f.Addresses, s.Address)
		}
		if s.Group != "" {
			f := of(&r.Flows, flow)
			f.Group = append(f.Group, s.Group)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.static
	n.static = records
	if alone && !n.state.Up {
		n.state.Up, n.state.Since = true, time.Now()
	}
	for name, k := range n.wanted {
		if alone || records[name] != nil || before[name] != nil {
			k.configured(records[name])
		}
	}
	n.tell()
}

// of returns the flow or state with a name, which it adds if it is missing.
func of(all *[]Flow, name string) *Flow {
	if f := find(*all, name); f != nil {
		return f
	}
	*all = append(*all, Flow{Name: name})
	return &(*all)[len(*all)-1]
}

// configured makes a record of the configuration the known one, with mu held.
func (k *known) configured(r *Record) {
	switch {
	case r == nil && k.record == nil, reflect.DeepEqual(r, k.record):
		return
	case r == nil:
		k.record = &Record{} // it has no flow any more
	default:
		k.record, k.found = r, time.Now()
	}
	close(k.changed)
	k.changed = make(chan struct{})
}
