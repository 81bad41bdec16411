package config

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/unifiedd/unifiedd/flows/cluster"
)

// Cluster says how flows find peers that they name, and under which name others find this daemon.
type Cluster struct {
	Resolver Resolver // empty: flows name peers by their addresses only
	// Name is the daemon's own; empty: that of the host. It applies to ResolverEtcd.
	Name      string
	Endpoints []string // URLs of etcd
	Lease     time.Duration
	Prefix    string // of all keys in etcd
	TLS       TLS    // to etcd; Certificate and Key are both empty if etcd asks for none
	// Peers are daemons whose places the configuration says: all with ResolverStatic, or those that are not in etcd.
	Peers []ClusterPeer
}

// ClusterPeer is where a flow of another daemon is.
type ClusterPeer struct {
	Peer    string // NAME/FLOW
	Address string // host:port of its TCP address; empty for a witness
	Group   string // host:port where the flow, a member of a group, talks with the others; empty: it is none
	Pos     Pos    // where it is configured
}

// Resolver is how peers are found by their names.
type Resolver string

// The resolvers.
const (
	ResolverStatic Resolver = "static" // by the configuration
	ResolverEtcd   Resolver = "etcd"
)

var allResolvers = []Resolver{ResolverStatic, ResolverEtcd}

// Bounds and defaults of the cluster. etcd grants no lease that is shorter than its elections last.
const (
	defaultLease    = 10 * time.Second
	minLease        = 2 * time.Second
	maxLease        = 10 * time.Minute
	defaultPrefix   = "/unifiedd/"
	maxPrefix       = 128
	maxEndpoints    = 16
	maxClusterPeers = 1024
)

func (d *decoder) cluster(path string, n *yaml.Node, c *Cluster) {
	d.mapping(path, n, fields{
		"resolver":  set(d, &c.Resolver, oneOf(allResolvers)),
		"name":      set(d, &c.Name, parseText),
		"endpoints": readTexts(d, &c.Endpoints),
		"lease":     set(d, &c.Lease, parseDuration),
		"prefix":    set(d, &c.Prefix, parseText),
		"tls":       func(p string, n *yaml.Node) { d.tls(p, n, &c.TLS) },
		"peers": func(path string, n *yaml.Node) {
			c.Peers = []ClusterPeer{}
			d.list(path, n, func(path string, n *yaml.Node) {
				one := ClusterPeer{Pos: d.at(n)}
				d.mapping(path, n, fields{"peer": set(d, &one.Peer, parseText), "address": set(d, &one.Address, parseText), "group": set(d, &one.Group, parseText)})
				c.Peers = append(c.Peers, one)
			})
		},
	})
}

// complete sets the defaults of a cluster with etcd.
func (c *Cluster) complete() {
	if c.Resolver != ResolverEtcd {
		return
	}
	if c.Lease == 0 {
		c.Lease = defaultLease
	}
	if c.Prefix == "" {
		c.Prefix = defaultPrefix
	}
}

// Static returns where peers are, as the configuration says.
func (c *Cluster) Static() (all []cluster.Static) {
	for _, p := range c.Peers {
		all = append(all, cluster.Static{Peer: p.Peer, Address: p.Address, Group: p.Group})
	}
	return all
}

// cluster checks how peers are found.
func (v *validator) cluster() {
	c := &v.Cluster
	if _, given := v.places["cluster"]; !given && c.Resolver == "" {
		return
	}
	if !v.need("cluster.resolver", string(c.Resolver), "etcd or static") {
		return
	}
	v.checkErr("cluster.resolver", member(c.Resolver, allResolvers))
	switch c.Resolver {
	case ResolverStatic:
		v.check(len(c.Peers) > 0, "cluster.peers", "at least one peer is needed, such as {peer: storage-1/log, address: \"10.0.0.2:7471\"}")
		for key, has := range map[string]bool{"endpoints": c.Endpoints != nil, "name": c.Name != "", "lease": c.Lease != 0, "prefix": c.Prefix != "", "tls": c.TLS != TLS{}} {
			if at := join("cluster", key); v.has(at, has) {
				v.refuse(at, wrong("remove it, or say resolver: etcd", "has no use with resolver: static"))
			}
		}
	case ResolverEtcd:
		v.etcd(c)
	}
	v.clusterPeers(c)
}

// has reports whether a setting is in the file, or was set by a program.
func (v *validator) has(path string, set bool) bool {
	_, given := v.places[path]
	return given || set
}

func (v *validator) clusterPeers(c *Cluster) {
	v.check(len(c.Peers) <= maxClusterPeers, "cluster.peers", "%d peers are too many; at most %d are possible", len(c.Peers), maxClusterPeers)
	once := newTaken[string](v, "peer and address")
	for i, p := range c.Peers {
		at := index("cluster.peers", i)
		if v.need(join(at, "peer"), p.Peer, "NAME/FLOW, the names of a daemon and of its flow,") {
			v.checkErr(join(at, "peer"), checkPeerName(p.Peer))
		}
		if v.given(join(at, "group"), p.Group) {
			v.checkErr(join(at, "group"), checkPeer(p.Group))
		}
		if p.Group == "" && v.need(join(at, "address"), p.Address, "the flow's address, host:port,") || p.Address != "" {
			v.checkErr(join(at, "address"), checkPeer(p.Address))
		}
		once.take(at, p.Peer+" at "+p.Address+p.Group)
	}
}

// etcd checks the settings of the engine that registers this daemon.
func (v *validator) etcd(c *Cluster) {
	if v.given("cluster.name", c.Name) {
		v.checkErr("cluster.name", cluster.ValidName(c.Name))
	}
	v.check(within(c.Lease, minLease, maxLease) && c.Lease%time.Second == 0, "cluster.lease", "%s is not whole seconds from %s to %s", c.Lease, minLease, maxLease)
	if p := c.Prefix; !strings.HasPrefix(p, "/") || !strings.HasSuffix(p, "/") || len(p) > maxPrefix || strings.ContainsFunc(p, func(r rune) bool { return r <= ' ' || r > '~' }) {
		v.refuse("cluster.prefix", fmt.Errorf("%s does not begin and end with a slash, is longer than %d, or has characters that are not printed", quote(p), maxPrefix))
	}
	v.check(len(c.Endpoints) > 0, "cluster.endpoints", "at least one is needed, such as \"https://10.0.0.5:2379\"")
	v.check(len(c.Endpoints) <= maxEndpoints, "cluster.endpoints", "%d are too many; at most %d are possible", len(c.Endpoints), maxEndpoints)
	once := newTaken[string](v, "endpoint")
	for i, e := range c.Endpoints {
		at := index("cluster.endpoints", i)
		v.checkErr(at, v.endpoint(e, c.TLS != TLS{}))
		once.take(at, e)
	}
	v.clusterTLS(c.TLS)
}

// endpoint returns an error for what is no URL of etcd, or does not fit to TLS.
func (v *validator) endpoint(text string, secure bool) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return fmt.Errorf("%s is not a URL like https://10.0.0.5:2379", quote(text))
	}
	if err := checkPeer(u.Host); err != nil {
		if _, _, split := net.SplitHostPort(u.Host); split != nil {
			return wrong(didYouMean(text+":2379"), "%s has no port", quote(text))
		}
		return err
	}
	switch {
	case u.Scheme == "https" && !secure:
		return wrong("add cluster.tls: {authority: ...}", "%s needs TLS", quote(text))
	case u.Scheme == "http" && secure:
		return wrong("say https, or remove cluster.tls", "%s is without TLS", quote(text))
	}
	return nil
}

// clusterTLS checks the files of TLS to etcd. etcd may ask for no certificate.
func (v *validator) clusterTLS(t TLS) {
	if !v.has("cluster.tls", t != TLS{}) {
		return
	}
	if v.need("cluster.tls.authority", t.Authority, "the PEM file of the authority which signs etcd's certificates") {
		v.checkErr("cluster.tls.authority", checkPath(t.Authority, maxFilePath))
	}
	if t.Certificate == "" && t.Key == "" {
		return
	}
	if v.need("cluster.tls.certificate", t.Certificate, "the PEM file of this daemon's certificate") {
		v.checkErr("cluster.tls.certificate", checkPath(t.Certificate, maxFilePath))
	}
	if v.need("cluster.tls.key", t.Key, "the PEM file of the certificate's key") {
		v.checkErr("cluster.tls.key", checkPath(t.Key, maxFilePath))
	}
}

func checkPeerName(text string) error {
	_, _, err := cluster.ParsePeer(text)
	return err
}

// complete sets the name and the flow of a peer that is named as NAME/FLOW.
func (p *Peer) complete() {
	if p.Paths != nil && p.PathMode == "" {
		p.PathMode = PathStandby
	}
	if p.Peer == "" {
		return
	}
	name, flow, err := cluster.ParsePeer(p.Peer)
	if err != nil {
		return // the validator says so
	}
	p.Flow = flow
	if p.Name == "" {
		p.Name = name
	}
}

// namedPeer checks a peer that is named as NAME/FLOW, with the other members of its group.
func (v *validator) namedPeer(path string, p Peer) {
	at := join(path, "peer")
	if !v.resolvable(at, p.Peer, "name: and address:") {
		return
	}
	for _, key := range []string{"address", "flow"} {
		if _, given := v.places[join(path, key)]; given || key == "address" && p.Address != "" {
			v.refuse(join(path, key), wrong("remove it, or peer:", "peer: says that already"))
		}
	}
	for i, name := range append([]string{p.Peer}, p.Others...) {
		if i > 0 {
			at = index(join(path, "others"), i-1)
		}
		v.findable(at, name, "address", func(p *ClusterPeer) bool { return p.Address != "" })
	}
}

// resolvable reports whether there is a resolver, which a name at a place needs.
func (v *validator) resolvable(at, name, instead string) bool {
	if v.Cluster.Resolver == "" {
		v.refuse(at, wrong("add cluster: {resolver: etcd, endpoints: [...]}, or say "+instead, "nothing says where %s is", quote(name)))
	}
	return v.Cluster.Resolver != ""
}

// findable checks a name, and that the configuration has an address of this kind for it if only that says where peers are.
func (v *validator) findable(at, name, kind string, has func(*ClusterPeer) bool) {
	if err := checkPeerName(name); err != nil {
		v.refuse(at, err)
		return
	}
	if v.Cluster.Resolver != ResolverStatic || v.explained("cluster.peers") {
		return
	}
	known := false
	for i := range v.Cluster.Peers {
		p := &v.Cluster.Peers[i]
		if p.Peer == name && has(p) {
			return
		}
		known = known || p.Peer == name
	}
	lacks := "is not among cluster.peers"
	if known {
		lacks = "has no " + kind + " among cluster.peers"
	}
	v.refuse(at, wrong("add {peer: "+name+", "+kind+": ...} there", "%s %s", quote(name), lacks))
}
