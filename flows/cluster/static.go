package cluster

import (
	"reflect"
	"time"
)

// Static is where a flow of a daemon is, as the configuration says.
type Static struct {
	Peer    string // NAME/FLOW
	Address string // IP address and TCP port, or a host's name and a port; may be empty with Group
	Group   string // where the flow, a member of a group, talks with the others; empty: it is none
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
		f := r.flow(flow)
		if f == nil {
			r.Flows = append(r.Flows, Flow{Name: flow})
			f = &r.Flows[len(r.Flows)-1]
		}
		if s.Address != "" {
			f.Addresses = append(f.Addresses, s.Address)
		}
		if s.Group != "" {
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
