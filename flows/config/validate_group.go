package config

import (
	"errors"
	"net"
	"net/netip"
	"time"
)

// Defaults and bounds of the settings of a group.
const (
	defaultHeartbeat = time.Millisecond
	defaultSuspect   = 100 * time.Millisecond
	defaultLag       = 64 * MiB
	minHeartbeat     = 100 * time.Microsecond
	minSuspect       = time.Millisecond
	maxSuspect       = time.Minute
	minMembers       = 3
	maxMembers       = 9 // 7 that vote, and some that are replaced
	maxNumber        = 1 << 30
	maxLag           = 64 * GiB
)

// replicas checks the group of a log.
func (v *validator) replicas(path string, f *Flow) {
	g := f.To.Replicas
	if g == nil {
		if _, given := v.places[path]; given && !v.explained(path) {
			v.refuse(path, wrong("say group: {name: …, self: …, members: […]}", "the group of a log has members"))
		}
		return
	}
	if f.To.Device != "" && !g.Witnesses() {
		v.refuse(v.first(join(path, "name"), path), wrong("say file:", "a member keeps its vote in a file beside its log, and the log is on a device"))
	}
	v.name(join(path, "name"), g.Name)
	v.check(g.Heartbeat >= minHeartbeat && g.Heartbeat <= g.Suspect/2, join(path, "heartbeat"), "%s is not from %s to half of suspect, which is %s", g.Heartbeat, minHeartbeat, g.Suspect)
	v.check(within(g.Suspect, minSuspect, maxSuspect), join(path, "suspect"), "%s is not from %s to %s", g.Suspect, minSuspect, maxSuspect)
	v.check(g.Lag <= maxLag, join(path, "lag"), "%s are more than %s", g.Lag, Size(maxLag))
	if f.From.Method == MethodWrite {
		v.refuse(v.first(join(path, "name"), path), wrong("say method: send in from:", "members of a group take messages by SEND only"))
	}
	v.members(join(path, "members"), g)
	self := join(path, "self")
	if !v.need(self, g.Self, "the name of this member") {
		return
	}
	i := g.Own()
	if i < 0 {
		v.refuse(self, wrong("name one of them, or add it", "%s is not among the members", quote(g.Self)))
		return
	}
	v.groupPaths(path, g, f)
	own, at := &g.Members[i], index(join(path, "members"), i)
	v.listens(path, g, own, f)
	if own.Witness || own.Peer != "" {
		return
	}
	v.check(own.Clients == "" || listensAt(f.From.Listen, own.Clients), join(at, "clients"), "this member listens at %s, and the others would look for it at %s", quote(f.From.Listen), quote(own.Clients))
	v.check(own.Address == "" || !listensAt(f.From.Listen, own.Address), join(at, "address"), "%s is also where the flow listens for clients: it needs another port", quote(own.Address))
}

// listens checks where a member takes connections of the others, if it is named by its daemon and flow.
func (v *validator) listens(path string, g *Replicas, own *Replica, f *Flow) {
	listen := join(path, "listen")
	if own.Peer == "" {
		if v.given(listen, g.Listen) {
			v.refuse(listen, wrong("remove it, or name this member by peer: NAME/FLOW", "this member listens at its address"))
		}
		return
	}
	if !v.need(listen, g.Listen, "the address to listen at for the other members, such as :7491,") {
		return
	}
	if err := checkAddress(g.Listen, ":7491"); err != nil {
		v.refuse(listen, err)
		return
	}
	host, port, _ := net.SplitHostPort(g.Listen)
	ip, _ := netip.ParseAddr(host)
	v.check(port != "0", listen, "%s has no fixed port, so that it cannot be registered", quote(g.Listen))
	v.check(!own.Witness || host != "" && !ip.IsUnspecified(), listen, "%s names no host, and a witness has no RDMA device that has addresses", quote(g.Listen))
	v.check(own.Witness || !sameListener(f.From.Listen, g.Listen), listen, "%s is also where the flow listens for clients: it needs another port", quote(g.Listen))
}

// sameListener reports whether two listeners would take each other's address.
func sameListener(a, b string) bool {
	hostA, portA, err := net.SplitHostPort(a)
	hostB, portB, err2 := net.SplitHostPort(b)
	every := func(host string) bool {
		ip, _ := netip.ParseAddr(host)
		return host == "" || ip.IsUnspecified()
	}
	return errors.Join(err, err2) == nil && portA == portB && (hostA == hostB || every(hostA) || every(hostB))
}

// listensAt reports whether a flow that listens at an address can be reached at another one.
func listensAt(listen, address string) bool {
	host, port, err := net.SplitHostPort(listen)
	to, toPort, err2 := net.SplitHostPort(address)
	if errors.Join(err, err2) != nil {
		return false // refused elsewhere
	}
	ip, _ := netip.ParseAddr(host) // a name is not any address
	return port == toPort && (host == "" || ip.IsUnspecified() || host == to)
}

// members checks the members of a group.
func (v *validator) members(path string, g *Replicas) {
	names, places, certificates := newTaken[string](v, "member"), newTaken[string](v, "address"), newTaken[string](v, "certificate")
	numbers, named := newTaken[uint32](v, "number"), newTaken[string](v, "peer")
	for i := range g.Members {
		r, at := &g.Members[i], index(path, i)
		v.name(join(at, "name"), r.Name)
		names.take(join(at, "name"), r.Name)
		if r.Peer != "" {
			v.namedMember(at, r, r.Name == g.Self)
			named.take(join(at, "peer"), r.Peer)
		} else {
			v.memberAddresses(at, r, places)
		}
		certificates.take(v.first(join(at, "certificate"), join(at, "peer"), join(at, "name")), r.CertificateName())
		v.check(len(r.Certificate) <= maxAllowed, join(at, "certificate"), "the name has %d bytes; at most %d are possible", len(r.Certificate), maxAllowed)
		v.check(within(r.Number, 0, maxNumber), join(at, "number"), "%d is not from 1 to %d", r.Number, maxNumber)
		numbers.take(v.first(join(at, "number"), at), g.NumberOf(i))
	}
	v.count(path, g)
}

// memberAddresses checks where a member is that has addresses.
func (v *validator) memberAddresses(at string, r *Replica, places *taken[string]) {
	if v.need(join(at, "address"), r.Address, "the address where the members talk to each other, host:port, or peer: NAME/FLOW") {
		v.checkErr(join(at, "address"), checkPeer(r.Address))
		places.take(join(at, "address"), r.Address)
	}
	clients := join(at, "clients")
	switch {
	case r.Witness && v.given(clients, r.Clients):
		v.refuse(clients, wrong("remove it", "a witness has no clients"))
	case !r.Witness && v.need(clients, r.Clients, "the address where clients append to the member's log, host:port,"):
		v.checkErr(clients, checkPeer(r.Clients))
		places.take(clients, r.Clients)
	}
}

// namedMember checks a member that the resolver finds. Where this one is, it need not find.
func (v *validator) namedMember(at string, r *Replica, own bool) {
	if !v.resolvable(join(at, "peer"), r.Peer, "address: and clients:") {
		return
	}
	for key, text := range map[string]string{"address": r.Address, "clients": r.Clients} {
		if v.given(join(at, key), text) {
			v.refuse(join(at, key), wrong("remove it, or peer:", "peer: says that already"))
		}
	}
	if own {
		v.checkErr(join(at, "peer"), checkPeerName(r.Peer))
		return
	}
	v.findable(join(at, "peer"), r.Peer, "group", func(p *ClusterPeer) bool { return p.Group != "" })
	if !r.Witness && !v.explained(join(at, "peer")) {
		v.findable(join(at, "peer"), r.Peer, "address", func(p *ClusterPeer) bool { return p.Address != "" })
	}
}

// count checks how many members a group has, and how many of them are witnesses.
func (v *validator) count(path string, g *Replicas) {
	witnesses, numbered := 0, 0
	for _, r := range g.Members {
		if r.Witness {
			witnesses++
		}
		if r.Number > 0 {
			numbered++
		}
	}
	n := len(g.Members)
	switch {
	case witnesses > 0 && n-witnesses < 2:
		v.refuse(path, wrong("add members", "a witness is for two members with logs"))
	case n < minMembers:
		v.refuse(path, wrong("add members, or a witness", "%d members cannot agree when one of them fails: a group has 3 to 7, or 2 and a witness", n))
	case n > maxMembers:
		v.refuse(path, wrong("remove some", "%d members are too many; at most %d are possible", n, maxMembers))
	case numbered > 0 && numbered < n:
		v.refuse(path, wrong("give each its number: without one it is the place in the list, from 1 on", "some members have a number, and some do not"))
	}
}
