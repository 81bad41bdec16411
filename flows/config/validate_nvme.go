package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Bounds of what NVMe hosts are told. A name has at most 223 bytes (NVM Express base specification, NVMe Qualified Names).
const (
	maxNQN   = 223
	minDepth = 32
	maxDepth = 1024
	minSeats = 2 // a host's admin queue and one for I/O
	// The first namespace is what the flow is from.
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
	v.namespaces(join(path, "namespaces"), t.Namespaces, minNamespace)
	v.hosts(path, t.Hosts)
	v.mayConnect(path, t, t.Hosts, t.AllowAnyHost)
	v.subsystems(path, t)
}

// subsystems checks those beside the first.
func (v *validator) subsystems(path string, t *To) {
	all := join(path, "subsystems")
	v.check(len(t.Subsystems) <= maxSubsystems, all, "%d are too many; at most %d are possible", len(t.Subsystems), maxSubsystems)
	v.check(len(t.Served()) <= maxNamespaces, all, "there are %d namespaces in all; at most %d are possible beside what the flow is from", len(t.Served()), maxNamespaces)
	once := newTaken[string](v, "subsystem")
	once.take(join(path, "subsystem"), t.Subsystem)
	for i := range t.Subsystems {
		s, at := &t.Subsystems[i], index(all, i)
		name := join(at, "subsystem")
		if v.need(name, s.NQN, "the name by which hosts find it, such as nqn.2026-01.com.example:disk2,") {
			v.checkErr(name, checkNQN(s.NQN))
			once.take(name, s.NQN)
		}
		v.namespaces(join(at, "namespaces"), s.Namespaces, 1)
		v.hosts(at, s.Hosts)
		v.mayConnect(at, t, s.Hosts, s.AllowAnyHost)
	}
}

// mayConnect checks that a subsystem says who may connect to it: everybody is never meant by saying nothing.
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

// hosts checks the list of those who may connect.
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

// namespaces checks those of a subsystem, whose numbers are from least.
func (v *validator) namespaces(all string, list []Namespace, least int) {
	v.check(len(list) <= maxNamespaces, all, "%d are too many; at most %d are possible", len(list), maxNamespaces)
	once := newTaken[int](v, "namespace")
	for i := range list {
		n, path := &list[i], index(all, i)
		id := join(path, "id")
		v.check(least == 1 || within(n.ID, least, maxNamespace), id, "%d is not from %d to %d: 1 is what the flow is from", n.ID, least, maxNamespace)
		v.check(least != 1 || within(n.ID, least, maxNamespace), id, "%d is not from %d to %d", n.ID, least, maxNamespace)
		once.take(id, n.ID)
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
