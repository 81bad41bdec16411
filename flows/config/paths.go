package config

import (
	"slices"

	"go.yaml.in/yaml/v4"
)

// Path is a further way between a flow and its peer or its clients: over another device.
type Path struct {
	RDMA string // the device here; see [SoftDevice]
	// Address is where the peer is, of a peer's path. Listen is where clients connect, of a path of a flow from clients.
	Address, Listen string
	// Others are where the other members are on a peer's path, if it is a group: in the order of Peer.Others.
	Others []string
}

// ReplicaPath is a further way to a member of a group.
type ReplicaPath struct {
	Address, Clients string // as those of the [Replica], in another network
}

// ListensFurther returns where this member takes connections of the others on its further paths.
func (g *Replicas) ListensFurther() (all []string) {
	if i := g.Own(); i >= 0 {
		for _, p := range g.Members[i].Paths {
			all = append(all, p.Address)
		}
	}
	return all
}

// maxPaths is the largest number of paths, the first one included.
const maxPaths = 4

// readListenPaths reads the further paths of clients.
func readListenPaths(d *decoder, _ *Flow, field any) read { return d.paths("listen", field.(*[]Path)) }

// paths returns a function that reads paths. key is listen or address.
func (d *decoder) paths(key string, to *[]Path) read {
	return func(path string, n *yaml.Node) {
		*to = []Path{}
		d.list(path, n, func(path string, n *yaml.Node) {
			one := Path{}
			known := fields{"rdma": set(d, &one.RDMA, parseText)}
			if key == "listen" {
				known[key] = set(d, &one.Listen, parseText)
			} else {
				known[key], known["others"] = set(d, &one.Address, parseText), readTexts(d, &one.Others)
			}
			d.mapping(path, n, known)
			*to = append(*to, one)
		})
	}
}

// clientPaths checks the further paths of clients.
func (v *validator) clientPaths(path string, f *Flow) {
	all := join(path, "paths")
	if f.From.Paths == nil {
		return
	}
	v.pathCount(all, f.From.Paths)
	for _, s := range f.Stages {
		if s.Sum != nil {
			v.refuse(all, wrong("remove paths", "a flow that adds up the messages of its clients has one device"))
		}
	}
	devices := newTaken[string](v, "device")
	devices.take(join(path, "rdma"), f.From.RDMA)
	for i, p := range f.From.Paths {
		at := index(all, i)
		v.rdma(join(at, "rdma"), p.RDMA)
		devices.take(join(at, "rdma"), p.RDMA)
		if v.need(join(at, "listen"), p.Listen, "the address to listen at for clients, host:port,") {
			v.checkErr(join(at, "listen"), checkAddress(p.Listen, "10.0.1.1:7471"))
		}
	}
}

// replicaPaths reads the further ways to a member of a group.
func (d *decoder) replicaPaths(path string, n *yaml.Node, to *[]ReplicaPath) {
	*to = []ReplicaPath{}
	d.list(path, n, func(path string, n *yaml.Node) {
		one := ReplicaPath{}
		d.mapping(path, n, fields{"address": set(d, &one.Address, parseText), "clients": set(d, &one.Clients, parseText)})
		*to = append(*to, one)
	})
}

// pathBeats is how many heartbeats must fit into the time of suspect if members have several paths: one is left after a
// quarter of that time.
const pathBeats = 16

// groupPaths checks the further paths between the members of a group.
func (v *validator) groupPaths(path string, g *Replicas, f *Flow) {
	mode, several := join(path, "path_mode"), len(f.From.Paths) > 0
	places := newTaken[string](v, "address")
	for i := range g.Members {
		r, at := &g.Members[i], join(index(join(path, "members"), i), "paths")
		several = several || r.Paths != nil
		places.take(join(index(join(path, "members"), i), "address"), r.Address)
		places.take(join(index(join(path, "members"), i), "clients"), r.Clients)
		v.check(r.Paths == nil || len(r.Paths) > 0, at, "no path is listed: remove the key")
		v.samePaths(at, r, g, f)
		for k := range r.Paths {
			v.replicaPath(index(at, k), r, &r.Paths[k], places)
		}
	}
	if g.PathMode != "" {
		v.checkErr(mode, member(g.PathMode, allPathModes))
	}
	v.check(several || g.PathMode == "", mode, "the members have one path: add paths, or remove path_mode")
	v.check(!several || g.Heartbeat <= g.Suspect/pathBeats, v.first(join(path, "heartbeat"), join(path, "suspect"), path), "%s is more than a sixteenth of suspect, which is %s: a path is left after a quarter of it", g.Heartbeat, g.Suspect)
	v.ownPaths(path, g, f)
}

// samePaths checks that a member has as many further paths as this one has devices for. A witness has no device.
func (v *validator) samePaths(at string, r *Replica, g *Replicas, f *Flow) {
	want, of := len(f.From.Paths), "from.paths has"
	if g.Witnesses() {
		want, of = len(g.Members[g.Own()].Paths), "this member has"
	}
	if len(r.Paths) != want {
		v.refuse(v.first(at, at[:len(at)-len(".paths")]), wrong("give each member one for each path", "member %s has %d further paths, and %s %d", quote(r.Name), len(r.Paths), of, want))
	}
}

// replicaPath checks a further way to a member.
func (v *validator) replicaPath(at string, r *Replica, p *ReplicaPath, places *taken[string]) {
	if v.need(join(at, "address"), p.Address, "the address where the members talk to each other on this path, host:port,") {
		v.checkErr(join(at, "address"), checkPeer(p.Address))
		places.take(join(at, "address"), p.Address)
	}
	clients := join(at, "clients")
	switch {
	case r.Witness && v.given(clients, p.Clients):
		v.refuse(clients, wrong("remove it", "a witness has no clients"))
	case !r.Witness && v.need(clients, p.Clients, "the address where clients append to the member's log on this path, host:port,"):
		v.checkErr(clients, checkPeer(p.Clients))
		places.take(clients, p.Clients)
	}
}

// ownPaths checks that this member listens where the others look for it.
func (v *validator) ownPaths(path string, g *Replicas, f *Flow) {
	i := g.Own()
	if i < 0 || g.Members[i].Witness {
		return
	}
	own := &g.Members[i]
	for k := range min(len(own.Paths), len(f.From.Paths)) {
		at, listen := index(join(index(join(path, "members"), i), "paths"), k), f.From.Paths[k].Listen
		v.check(own.Paths[k].Clients == "" || listensAt(listen, own.Paths[k].Clients), join(at, "clients"), "this member listens at %s on this path, and the others would look for it at %s", quote(listen), quote(own.Paths[k].Clients))
		v.check(own.Paths[k].Address == "" || !listensAt(listen, own.Paths[k].Address), join(at, "address"), "%s is also where the flow listens for clients: it needs another port", quote(own.Paths[k].Address))
	}
}

// peerPaths checks the further paths to a peer, and how they are used.
func (v *validator) peerPaths(path string, to *To, p Peer) {
	all, mode, device := join(path, "paths"), join(path, "path_mode"), to.RDMA
	if p.Paths == nil {
		v.check(p.PathMode == "", mode, "the peer has one path: add paths, or remove path_mode")
		return
	}
	v.checkErr(mode, member(p.PathMode, allPathModes))
	v.check(p.PathMode != PathActive || to.Method != MethodWrite, mode, "messages that are written go over one path at a time: say standby, or to.method: send")
	v.pathCount(all, p.Paths)
	v.check(p.PathMode != PathActive || len(p.Others) == 0, mode, "the members of a group take messages over one path at a time: say standby")
	v.check(p.Peer == "", all, "the paths of a peer are addresses: say address: and not peer:")
	once := newTaken[string](v, "path")
	once.take(join(path, "address"), device+" to "+p.Address)
	for i, one := range p.Paths {
		at := index(all, i)
		v.rdma(join(at, "rdma"), one.RDMA)
		if v.need(join(at, "address"), one.Address, "the peer's address on this path, host:port,") {
			v.checkErr(join(at, "address"), checkPeer(one.Address))
		}
		once.take(at, one.RDMA+" to "+one.Address)
		if p.Peer == "" {
			v.pathOthers(at, one, p)
		}
	}
}

// pathOthers checks where the other members of a group are on a path to it.
func (v *validator) pathOthers(at string, one Path, p Peer) {
	others := join(at, "others")
	if len(one.Others) != len(p.Others) {
		v.refuse(v.first(others, at), wrong("give each path one for each, in the same order", "the path has addresses of %d other members of a group, and others of the peer has %d", len(one.Others), len(p.Others)))
	}
	members := newTaken[string](v, "member")
	members.take(join(at, "address"), one.Address)
	for i, other := range one.Others {
		if at := index(others, i); v.need(at, other, "the address of another member of the group on this path, host:port,") {
			v.checkErr(at, checkPeer(other))
			members.take(at, other)
		}
	}
}

func (v *validator) pathCount(all string, paths []Path) {
	v.check(len(paths) > 0, all, "no path is listed: remove the key")
	v.check(len(paths) < maxPaths, all, "%d further paths are too many; at most %d are possible", len(paths), maxPaths-1)
}

// sharedPaths records the resources of a flow's further paths.
func (s *shared) sharedPaths(path string, f *Flow) {
	f.eachPath(func(at string, p *Path) {
		s.device(join(path, join(at, "rdma")), p.RDMA)
		s.listen(join(path, join(at, "listen")), p.Listen, "")
	})
}

// Devices returns the RDMA devices of the flow, those of its paths included, each once.
func (f *Flow) Devices() (names []string) {
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	add(f.From.RDMA)
	add(f.To.RDMA)
	f.eachPath(func(_ string, p *Path) { add(p.RDMA) })
	return names
}

// eachPath calls do for each further path, with its place relative to the flow.
func (f *Flow) eachPath(do func(path string, p *Path)) {
	for i := range f.From.Paths {
		do(index("from.paths", i), &f.From.Paths[i])
	}
	for i := range f.To.Peers {
		for k := range f.To.Peers[i].Paths {
			do(index(join(index("to.peers", i), "paths"), k), &f.To.Peers[i].Paths[k])
		}
	}
}

// active returns the number of paths to the peer that are used at the same time.
func (p *Peer) active() int {
	if p.PathMode == PathActive {
		return 1 + len(p.Paths)
	}
	return 1
}
