package config

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/unifiedd/unifiedd/internal/pcapng"
)

// Bounds of RDMA settings. A record of a log is a pcapng block. Readers accept blocks with packets
// of up to 256 KiB.
const (
	maxDevice      = 63
	maxWindow      = 4096
	maxClients     = 1024
	maxPeers       = 16
	maxParticipant = 65535
	maxPeerWait    = 65536 // messages in a peer's queue
	maxLogged      = 256*KiB - 64
	minTransfer    = 4 * KiB
	maxTransfer    = 64 * MiB
	maxAllowed     = 255 // bytes of a certificate's name
)

// clientListener has the settings of a listener for clients.
type clientListener struct {
	rdma, listen    string
	window, clients int
	allow           []string
}

// clientListener checks the settings that both kinds of servers have.
func (v *validator) clientListener(path string, d clientListener) {
	v.rdma(join(path, "rdma"), d.rdma)
	if v.need(join(path, "listen"), d.listen, "the address to listen at for clients, host:port,") {
		v.checkErr(join(path, "listen"), checkAddress(d.listen, "10.0.0.1:7471"))
	}
	v.check(within(d.window, 1, maxWindow), join(path, "window"), "%d is not from 1 to %d", d.window, maxWindow)
	v.check(within(d.clients, 1, maxClients), join(path, "clients"), "%d is not from 1 to %d", d.clients, maxClients)
	v.allow(join(path, "allow"), d.allow)
}

// rdma checks the name of a device.
func (v *validator) rdma(path, name string) {
	if v.need(path, name, "an RDMA device, roce:INTERFACE or one like mlx5_0,") {
		v.checkErr(path, checkRDMA(name))
	}
}

// allow checks names of certificates, which require TLS.
func (v *validator) allow(path string, names []string) {
	if names == nil {
		return
	}
	if len(names) == 0 {
		v.refuse(path, wrong("remove the key to allow all whom the authority signed", "no name is listed"))
	}
	if _, given := v.places["tls"]; !given && v.TLS == (TLS{}) {
		v.refuse(path, wrong("add tls: {certificate, key, authority}", "has a meaning only with tls: the names are those of certificates"))
		return
	}
	once := newTaken[string](v, "name")
	for i, name := range names {
		at := index(path, i)
		v.need(at, name, "the name of a certificate")
		v.check(len(name) <= maxAllowed, at, "the name has %d bytes; at most %d are possible", len(name), maxAllowed)
		once.take(at, name)
	}
}

// clients checks the source of a flow that receives messages.
func (v *validator) clients(path string, f *Flow) {
	from := &f.From
	v.clientListener(path, clientListener{from.RDMA, from.Listen, from.Window, from.Clients, from.Allow})
	v.clientPaths(path, f)
	v.checkErr(join(path, "method"), member(from.Method, allMethods))
	switch verify := v.first(join(path, "verify"), join(path, "method"), path); {
	case from.Verify:
	case f.To.Replicas != nil:
		v.refuse(verify, wrong("say verify: true, or leave it out",
			"the members of a group take no record with a bad payload, so one that the leader took from a client would stop the group"))
	case from.Method == MethodWrite:
		v.refuse(verify, wrong("say verify: true, or method: send",
			"messages which are written must be verified, or a client could pass off what memory held before as its own"))
	}
	if v.explained(join(path, "rdma")) {
		return // without a usable device the default of message is not known
	}
	if err := v.message(f); err != nil {
		v.refuse(join(path, "message"), err)
	}
}

// message checks the length of the longest payload.
func (v *validator) message(f *Flow) error {
	m, extent := f.From.Message, v.Region.Extent
	switch longest := extent - min(extent, MessageOverhead); {
	case m == 0:
		return fmt.Errorf("at least 1 is needed")
	case v.Region.InFrame(m):
	case m > longest:
		return wrong("lower it, or raise region.extent", "%s do not fit an extent of %s, which has room for %d", m, extent, longest)
	case f.Kind().Log() && m > maxLogged:
		return fmt.Errorf("at most %d is possible in a log", maxLogged)
	}
	if f.Kind().Log() {
		return v.batch(f)
	}
	return nil
}

// batch returns an error if the longest record of a log is too long for a batch on the disk with
// the smallest blocks.
func (v *validator) batch(f *Flow) error {
	const block = 512
	most := uint64(f.To.Segment.Size) / 4
	if f.To.Layout == LayoutPacked {
		most = min(most, uint64(v.Region.Extent))
	}
	need := uint64(pcapng.PacketBlockLen(64+uint32(f.From.Message)+pcapng.NumberLen, block)) + 2*block
	if need > most && most > 0 {
		return wrong("lower it, or raise segment.size and, with layout packed, region.extent",
			"records of %d bytes need %d in a batch, which has %d at most: a quarter of segment.size and, with layout packed, region.extent", f.From.Message, need, most)
	}
	return nil
}

// peers checks the sink of a flow that sends to peers.
func (v *validator) peers(path string, t *To) {
	v.rdma(join(path, "rdma"), t.RDMA)
	v.checkErr(join(path, "choose"), member(t.Choose, allChoices))
	v.check(within(t.Participant, 0, maxParticipant), join(path, "participant"), "%d is not from 0 to %d", t.Participant, maxParticipant)
	v.check(within(t.Queue, 1, maxPeerWait), join(path, "queue"), "%d is not from 1 to %d", t.Queue, maxPeerWait)
	v.checkErr(join(path, "method"), member(t.Method, peerMethods))
	v.checkErr(join(path, "durability"), member(t.Durability, logAcknowledges))
	all := join(path, "peers")
	v.check(len(t.Peers) > 0, all, "at least one peer is needed")
	v.check(len(t.Peers) <= maxPeers, all, "%d peers are too many; at most %d are possible", len(t.Peers), maxPeers)
	names, places, named := newTaken[string](v, "peer"), newTaken[string](v, "flow and address"), newTaken[string](v, "peer")
	for i, p := range t.Peers {
		at := index(all, i)
		v.peer(at, p)
		v.peerPaths(at, t, p)
		named.take(join(at, "peer"), p.Peer)
		names.take(join(at, "name"), p.Name)
		if p.Address != "" {
			places.take(join(at, "address"), cmp.Or(p.Flow, "the flow")+" at "+p.Address)
		}
	}
}

func (v *validator) peer(path string, p Peer) {
	v.name(join(path, "name"), p.Name)
	if p.Flow != "" {
		v.name(join(path, "flow"), p.Flow)
	}
	v.checkErr(join(path, "policy"), member(p.Policy, allPolicies))
	v.check(len(p.Others) < maxMembers, join(path, "others"), "%d other members are too many; at most %d are possible", len(p.Others), maxMembers-1)
	if v.given(join(path, "peer"), p.Peer) {
		v.namedPeer(path, p)
		return
	}
	if v.need(join(path, "address"), p.Address, "the peer's address, host:port,") {
		v.checkErr(join(path, "address"), checkPeer(p.Address))
	}
	members := newTaken[string](v, "member")
	members.take(join(path, "address"), p.Address)
	for i, other := range p.Others {
		at := index(join(path, "others"), i)
		if v.need(at, other, "the address of another member of the group, host:port,") {
			v.checkErr(at, checkPeer(other))
			members.take(at, other)
		}
	}
}

// acknowledge checks that each message goes to enough peers to meet the condition.
func (v *validator) acknowledge(path string, t *To) {
	if t.Acknowledge == acknowledgeQuorum {
		v.refuse(path, wrong("say acknowledge: most, or keep the log in a group (to.group)", "quorum promises a consistent group, and a flow with peers is none: "+
			"peers that missed messages are not repaired, and several relays have no common order"))
		return
	}
	v.checkErr(path, member(t.Acknowledge, peerAcknowledges))
	switch {
	case t.Choose != ChooseAll && (t.Acknowledge == AcknowledgeMost || t.Acknowledge == AcknowledgeAll):
		v.refuse(path, wrong("say acknowledge: any, or choose: all",
			"%s needs choose: all; with choose: %s a message is sent to one peer", t.Acknowledge, t.Choose))
	case t.Acknowledge == AcknowledgeMost && len(t.Peers) < 2:
		v.refuse(path, wrong("add peers, or say acknowledge: all", "most of the peers needs 2 peers or more"))
	}
}

// Bounds of settings for NVMe hosts. A name has at most 223 bytes (NVM Express base specification,
// NVMe Qualified Names).
const (
	maxNQN   = 223
	minDepth = 32
	maxDepth = 1024
	minSeats = 2 // a host's admin queue and one for I/O
	// Namespace 1 is the flow's own file or device.
	minNamespace  = 2
	maxNamespace  = 1024
	maxNamespaces = 64
	maxSubsystems = 64
)

// subsystem checks how a file or device is served to NVMe hosts.
func (v *validator) subsystem(path string, t *To) {
	v.rdma(join(path, "rdma"), t.RDMA)
	if v.need(join(path, "listen"), t.Listen, "the address to listen at for hosts, host:port,") {
		v.checkErr(join(path, "listen"), checkAddress(t.Listen, "10.0.0.1:4420"))
	}
	v.checkErr(join(path, "subsystem"), checkNQN(t.Subsystem))
	v.check(within(t.Window, minDepth, maxDepth), join(path, "window"), "%d is not from %d to %d: it is the entries of a queue", t.Window, minDepth, maxDepth)
	v.check(within(t.Clients, minSeats, maxClients), join(path, "clients"), "%d is not from %d to %d: each host takes a queue, and one for each of its processors", t.Clients, minSeats, maxClients)
	if keys := join(path, "keys"); t.Keys != "" && !filepath.IsAbs(t.Keys) {
		v.refuse(keys, errors.New("is not an absolute path"))
	}
	if t.Keys == "" && t.Group != "" {
		v.refuse(join(path, "group"), wrong("say keys: too, the file with the keys of hosts", "without keys no host proves who it is"))
	}
	if t.Reservations != "" && !filepath.IsAbs(t.Reservations) {
		v.refuse(join(path, "reservations"), errors.New("is not an absolute path"))
	}
	v.checkErr(join(path, "ana"), member(t.ANA, allANAStates))
	n := int(t.Controllers[1]) - int(t.Controllers[0]) + 1
	v.check(t.Controllers[0] > 0 && t.Controllers[1] <= MaxController && n >= t.Clients, join(path, "controllers"), "%s are %d numbers; each of up to %d hosts (clients) needs one, from 1 to %d", t.Controllers, max(n, 0), t.Clients, MaxController)
	v.namespaces(join(path, "namespaces"), t.Namespaces, minNamespace)
	v.hosts(path, t.Hosts)
	v.mayConnect(path, t, t.Hosts, t.AllowAnyHost)
	v.subsystems(path, t)
}

// subsystems checks the further subsystems.
func (v *validator) subsystems(path string, t *To) {
	all := join(path, "subsystems")
	v.check(len(t.Subsystems) <= maxSubsystems, all, "%d are too many; at most %d are possible", len(t.Subsystems), maxSubsystems)
	v.check(len(t.Served()) <= maxNamespaces, all, "there are %d namespaces in all; at most %d are possible in addition to the flow's own", len(t.Served()), maxNamespaces)
	once := newTaken[string](v, "subsystem")
	once.take(join(path, "subsystem"), t.Subsystem)
	for i := range t.Subsystems {
		s, at := &t.Subsystems[i], index(all, i)
		name := join(at, "subsystem")
		if v.need(name, s.NQN, "the name by which hosts find it, such as nqn.2026-01.com.example:disk2,") {
			v.checkErr(name, checkNQN(s.NQN))
			once.take(name, s.NQN)
		}
		v.check(s.ANA == "" || member(s.ANA, allANAStates) == nil, join(at, "ana"), "%s is not one of %v", quote(string(s.ANA)), allANAStates)
		v.namespaces(join(at, "namespaces"), s.Namespaces, 1)
		v.hosts(at, s.Hosts)
		v.mayConnect(at, t, s.Hosts, s.AllowAnyHost)
	}
}

// mayConnect checks that a subsystem names the hosts that may connect. An empty list never means
// every host.
func (v *validator) mayConnect(path string, t *To, hosts []string, any bool) {
	at := join(path, "allow_any_host")
	switch {
	case any && hosts != nil:
		v.refuse(at, wrong("remove one of them", "hosts: names those that may connect"))
	case any && t.Keys != "":
		v.refuse(at, wrong("remove one of them", "with keys: only hosts that have one may connect"))
	case !any && hosts == nil && t.Keys == "":
		v.refuse(join(path, "subsystem"), wrong("list them in hosts:, name a file of their keys in keys:, or say allow_any_host: true", "nothing says which hosts may connect"))
	}
}

// hosts checks the list of hosts that may connect.
func (v *validator) hosts(path string, hosts []string) {
	at := join(path, "hosts")
	if hosts == nil {
		return
	}
	if len(hosts) == 0 {
		v.refuse(at, wrong("list one, or remove the key and say allow_any_host: true", "no host is listed"))
	}
	once := newTaken[string](v, "host")
	for i, nqn := range hosts {
		v.checkErr(index(at, i), checkNQN(nqn))
		once.take(index(at, i), nqn)
	}
}

// namespaces checks the namespaces of a subsystem. least is the smallest ID.
func (v *validator) namespaces(all string, list []Namespace, least int) {
	v.check(len(list) <= maxNamespaces, all, "%d are too many; at most %d are possible", len(list), maxNamespaces)
	once := newTaken[int](v, "namespace")
	for i := range list {
		n, path := &list[i], index(all, i)
		id := join(path, "id")
		v.check(least == 1 || within(n.ID, least, maxNamespace), id, "%d is not from %d to %d: 1 is what the flow is from", n.ID, least, maxNamespace)
		v.check(least != 1 || within(n.ID, least, maxNamespace), id, "%d is not from %d to %d", n.ID, least, maxNamespace)
		once.take(id, n.ID)
		v.check(n.ANA == "" || member(n.ANA, allANAStates) == nil, join(path, "ana"), "%s is not one of %v", quote(string(n.ANA)), allANAStates)
		switch {
		case n.File != "" && n.Device != "":
			v.refuse(join(path, "device"), wrong("say one of them", "a namespace is a file or a device"))
		case n.Path() == "":
			v.refuse(path, wrong("say file: or device:", "the namespace is of nothing"))
		case !filepath.IsAbs(n.Path()):
			v.refuse(join(path, map[bool]string{true: "device", false: "file"}[n.Device != ""]), errors.New("is not an absolute path"))
		}
	}
}

// checkNQN says what is wrong with the name of a subsystem or host.
func checkNQN(s string) error {
	switch {
	case len(s) > maxNQN:
		return fmt.Errorf("the name has %d bytes; at most %d are possible", len(s), maxNQN)
	case !strings.HasPrefix(s, "nqn.") || len(s) == len("nqn.") || strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' }):
		return wrong("say one like nqn.2026-01.com.example:disk1", "%s is no NVMe Qualified Name", quote(s))
	}
	return nil
}
