package config

import (
	"errors"
	"strings"

	"go.yaml.in/yaml/v4"
)

// config reads a whole file into c, which holds the defaults.
func (d *decoder) config(n *yaml.Node, c *Config) {
	d.mapping("", n, fields{
		"region":  func(p string, n *yaml.Node) { d.region(p, n, &c.Region) },
		"workers": func(p string, n *yaml.Node) { d.workers(p, n, c) },
		"user":    set(d, &c.User, parseText),
		"log":     func(p string, n *yaml.Node) { d.log(p, n, &c.Log) },
		"metrics": func(p string, n *yaml.Node) {
			d.mapping(p, n, fields{"listen": set(d, &c.Metrics.Listen, parseText)})
		},
		"control": func(p string, n *yaml.Node) {
			d.mapping(p, n, fields{"socket": set(d, &c.Control.Socket, parseText), "state": set(d, &c.Control.State, parseText)})
		},
		"trace": func(p string, n *yaml.Node) {
			d.mapping(p, n, fields{"directory": set(d, &c.Trace.Directory, parseText), "events": set(d, &c.Trace.Events, parseInt)})
		},
		"attach":  func(p string, n *yaml.Node) { d.attach(p, n, &c.Attach) },
		"tls":     func(p string, n *yaml.Node) { d.tls(p, n, &c.TLS) },
		"cluster": func(p string, n *yaml.Node) { d.cluster(p, n, &c.Cluster) },
		"flows":   func(p string, n *yaml.Node) { d.flows(p, n, c) },
	})
}

func (d *decoder) region(path string, n *yaml.Node, r *Region) {
	d.mapping(path, n, fields{
		"size":    set(d, &r.Size, parseSize),
		"pages":   set(d, &r.Pages, oneOf(allPages)),
		"device":  set(d, &r.Device, parseText),
		"frame":   set(d, &r.Frame, parseInt),
		"extent":  set(d, &r.Extent, parseSize),
		"extents": set(d, &r.Extents, parseInt),
		"node":    setOptional(d, &r.Node, parseInt),
		"reserve": set(d, &r.Reserve, parseBool),
	})
}

func (d *decoder) log(path string, n *yaml.Node, l *Log) {
	d.mapping(path, n, fields{
		"level":  set(d, &l.Level, oneOf(allLevels)),
		"format": set(d, &l.Format, oneOf(allFormats)),
	})
}

func (d *decoder) workers(path string, n *yaml.Node, c *Config) {
	c.Workers = nil
	d.list(path, n, func(path string, n *yaml.Node) {
		w := NewWorker("")
		w.Pos = d.at(n)
		d.worker(path, n, &w)
		c.Workers = append(c.Workers, w)
	})
}

func (d *decoder) worker(path string, n *yaml.Node, w *Worker) {
	d.mapping(path, n, fields{
		"name":  set(d, &w.Name, parseText),
		"cpu":   setOptional(d, &w.CPU, parseInt),
		"wait":  set(d, &w.Wait, parseWait),
		"sleep": set(d, &w.Sleep, parseDuration),
	})
}

func (d *decoder) tls(path string, n *yaml.Node, t *TLS) {
	d.mapping(path, n, fields{
		"certificate": set(d, &t.Certificate, parseText),
		"key":         set(d, &t.Key, parseText),
		"authority":   set(d, &t.Authority, parseText),
	})
}

func (d *decoder) attach(path string, n *yaml.Node, a *Attach) {
	d.mapping(path, n, fields{
		"socket": set(d, &a.Socket, parseText),
		"programs": func(path string, n *yaml.Node) {
			d.list(path, n, func(path string, n *yaml.Node) {
				p := Program{Pos: d.at(n)}
				d.mapping(path, n, fields{
					"name": set(d, &p.Name, parseText),
					"user": set(d, &p.User, parseText),
					"in":   set(d, &p.In, parseSize),
					"out":  set(d, &p.Out, parseSize),
				})
				a.Programs = append(a.Programs, p)
			})
		},
		"channels": func(path string, n *yaml.Node) {
			d.list(path, n, func(path string, n *yaml.Node) {
				c := Channel{Slots: defaultSlots, Slot: defaultSlot, Pos: d.at(n)}
				d.channel(path, n, &c)
				a.Channels = append(a.Channels, c)
			})
		},
		"states": func(path string, n *yaml.Node) {
			d.list(path, n, func(path string, n *yaml.Node) {
				s := State{Remote: StateRemote{Clients: defaultStateClients}, Pos: d.at(n)}
				d.state(path, n, &s)
				a.States = append(a.States, s)
			})
		},
	})
}

func (d *decoder) channel(path string, n *yaml.Node, c *Channel) {
	d.mapping(path, n, fields{
		"name":   set(d, &c.Name, parseText),
		"writer": set(d, &c.Writer, parseText),
		"slots":  set(d, &c.Slots, parseInt),
		"slot":   set(d, &c.Slot, parseSize),
		"readers": func(path string, n *yaml.Node) {
			d.list(path, n, func(path string, n *yaml.Node) {
				r := ChannelReader{Policy: PolicyDropOldest}
				d.mapping(path, n, fields{"program": set(d, &r.Program, parseText), "policy": set(d, &r.Policy, oneOf(channelPolicies))})
				c.Readers = append(c.Readers, r)
			})
		},
	})
}

func (d *decoder) flows(path string, n *yaml.Node, c *Config) {
	d.list(path, n, func(path string, n *yaml.Node) {
		f := Flow{Pos: d.at(n)}
		d.flow(path, n, &f)
		d.fill(path, &f)
		c.Flows = append(c.Flows, f)
	})
}

// flow reads the settings of a flow.
func (d *decoder) flow(path string, n *yaml.Node, f *Flow) {
	d.mapping(path, n, d.settings("", f))
}

// readInterfaces reads a list of names, or of mappings with a name and a comment.
func readInterfaces(d *decoder, f *Flow, _ any) read {
	return func(path string, n *yaml.Node) { d.interfaces(path, n, &f.From) }
}

func (d *decoder) interfaces(path string, n *yaml.Node, f *From) {
	f.Interfaces = []string{}
	var comments []string
	d.list(path, n, func(path string, n *yaml.Node) {
		var name, comment string
		if n.Kind == yaml.MappingNode || n.Kind == yaml.AliasNode && n.Alias.Kind == yaml.MappingNode {
			d.mapping(path, n, fields{"name": set(d, &name, parseText), "comment": set(d, &comment, parseText)})
		} else {
			set(d, &name, parseText)(path, n)
		}
		f.Interfaces, comments = append(f.Interfaces, name), append(comments, comment)
	})
	if strings.Join(comments, "") != "" {
		f.Comments = comments
	}
	if f.Interface == "" && len(f.Interfaces) > 0 {
		f.Interface = f.Interfaces[0]
	}
}

// readQueues reads a list of numbers or the word all.
func readQueues(d *decoder, f *Flow, _ any) read {
	return func(path string, n *yaml.Node) { d.queues(path, n, &f.From) }
}

func (d *decoder) queues(path string, n *yaml.Node, f *From) {
	if v, ok := d.value(path, n); !ok || v.Kind != yaml.SequenceNode {
		set(d, &f.Queues, parseAllQueues)(path, n)
		return
	}
	f.Queues = []int{}
	d.list(path, n, func(path string, n *yaml.Node) {
		var q int
		set(d, &q, parseInt)(path, n)
		f.Queues = append(f.Queues, q)
	})
}

// readDiscard reads a word that must be true.
func readDiscard(d *decoder, f *Flow, _ any) read {
	return func(path string, n *yaml.Node) {
		f.To.Discard = true
		set(d, new(bool), parseTrue)(path, n)
	}
}

// readDevice reads the name of an RDMA device, or a mapping of the settings whose paths begin with this one.
func readDevice(path string) reader {
	return func(d *decoder, f *Flow, field any) read {
		return func(at string, n *yaml.Node) {
			if v, ok := d.value(at, n); ok && v.Kind == yaml.MappingNode {
				d.mapping(at, v, d.settings(path+".", f))
				return
			}
			set(d, field.(*string), parseText)(at, n)
		}
	}
}

// deviceOf reads the name of an RDMA device in its mapping.
func deviceOf(field func(*Flow) *string) reader {
	return func(d *decoder, f *Flow, _ any) read { return set(d, field(f), parseText) }
}

func readPeers(d *decoder, f *Flow, _ any) read {
	return func(path string, n *yaml.Node) { d.peers(path, n, &f.To) }
}

func (d *decoder) peers(path string, n *yaml.Node, t *To) {
	d.list(path, n, func(path string, n *yaml.Node) {
		p := Peer{Pos: d.at(n)}
		d.mapping(path, n, fields{
			"name":    set(d, &p.Name, parseText),
			"address": set(d, &p.Address, parseText),
			"others":  readTexts(d, &p.Others),
			"flow":    set(d, &p.Flow, parseText),
			"peer":    set(d, &p.Peer, parseText),
			"policy":  set(d, &p.Policy, oneOf(allPolicies)),
			"paths":   d.paths("address", &p.Paths),

			"path_mode": set(d, &p.PathMode, oneOf(allPathModes)),

			"traffic_class": setOptional(d, &p.TrafficClass, parseTrafficClass),
			"priority":      setOptional(d, &p.Priority, parsePriority),
		})
		t.Peers = append(t.Peers, p)
	})
}

// readGroup reads the name of a Diffie-Hellman group, or the members of a log's group.
func readGroup(d *decoder, f *Flow, field any) read {
	return func(path string, n *yaml.Node) {
		if v, ok := d.value(path, n); ok && v.Kind == yaml.MappingNode {
			f.To.Replicas = &Replicas{Heartbeat: defaultHeartbeat, Suspect: defaultSuspect, Lag: defaultLag}
			d.replicas(path, v, f.To.Replicas)
			return
		}
		set(d, field.(*AuthGroup), oneOf(allAuthGroups))(path, n)
	}
}

func (d *decoder) replicas(path string, n *yaml.Node, g *Replicas) {
	d.mapping(path, n, fields{
		"name":      set(d, &g.Name, parseText),
		"self":      set(d, &g.Self, parseText),
		"listen":    set(d, &g.Listen, parseText),
		"heartbeat": set(d, &g.Heartbeat, parseDuration),
		"suspect":   set(d, &g.Suspect, parseDuration),
		"lag":       set(d, &g.Lag, parseSize),
		"path_mode": set(d, &g.PathMode, oneOf(allPathModes)),
		"members": func(path string, n *yaml.Node) {
			d.list(path, n, func(path string, n *yaml.Node) {
				one := Replica{}
				d.mapping(path, n, fields{
					"name":        set(d, &one.Name, parseText),
					"address":     set(d, &one.Address, parseText),
					"clients":     set(d, &one.Clients, parseText),
					"peer":        set(d, &one.Peer, parseText),
					"number":      set(d, &one.Number, parseInt),
					"witness":     set(d, &one.Witness, parseBool),
					"joins":       set(d, &one.Joins, parseBool),
					"certificate": set(d, &one.Certificate, parseText),
					"paths":       func(p string, n *yaml.Node) { d.replicaPaths(p, n, &one.Paths) },
				})
				g.Members = append(g.Members, one)
			})
		},
	})
}

func readSubsystems(d *decoder, f *Flow, _ any) read {
	return func(path string, n *yaml.Node) { d.subsystems(path, n, &f.To) }
}

func (d *decoder) subsystems(path string, n *yaml.Node, t *To) {
	d.list(path, n, func(path string, n *yaml.Node) {
		one := Subsystem{Pos: d.at(n)}
		d.mapping(path, n, fields{
			"subsystem":      set(d, &one.NQN, parseText),
			"hosts":          readTexts(d, &one.Hosts),
			"allow_any_host": set(d, &one.AllowAnyHost, parseBool),
			"ana":            set(d, &one.ANA, oneOf(allANAStates)),
			"namespaces":     func(p string, n *yaml.Node) { d.namespaces(p, n, &one.Namespaces) },
		})
		t.Subsystems = append(t.Subsystems, one)
	})
}

func readNamespaces(d *decoder, f *Flow, _ any) read {
	return func(path string, n *yaml.Node) { d.namespaces(path, n, &f.To.Namespaces) }
}

func (d *decoder) namespaces(path string, n *yaml.Node, to *[]Namespace) {
	d.list(path, n, func(path string, n *yaml.Node) {
		one := Namespace{Pos: d.at(n)}
		d.mapping(path, n, fields{
			"id":        set(d, &one.ID, parseInt),
			"ana":       set(d, &one.ANA, oneOf(allANAStates)),
			"file":      set(d, &one.File, parseText),
			"device":    set(d, &one.Device, parseText),
			"read_only": set(d, &one.ReadOnly, parseBool),
		})
		*to = append(*to, one)
	})
}

// readTexts reads a list of texts. An empty list is not nil.
func readTexts(d *decoder, dst *[]string) read {
	return func(path string, n *yaml.Node) {
		all := []string{}
		d.list(path, n, func(path string, n *yaml.Node) {
			var s string
			set(d, &s, parseText)(path, n)
			all = append(all, s)
		})
		*dst = all
	}
}

func readFilter(d *decoder, f *Flow, _ any) read {
	return func(path string, n *yaml.Node) { d.filter(path, n, &f.From) }
}

// filter reads an expression, an object or rules.
func (d *decoder) filter(path string, n *yaml.Node, f *From) {
	v, ok := d.value(path, n)
	switch {
	case ok && v.Kind == yaml.MappingNode && len(v.Content) == 0:
		d.reject(path, errors.New("has neither object nor program"))
	case ok && v.Kind == yaml.MappingNode:
		d.mapping(path, n, fields{"object": set(d, &f.Object.File, parseText), "program": set(d, &f.Object.Program, parseText)})
	case ok && v.Kind == yaml.SequenceNode:
		f.Rules = []Rule{}
		d.list(path, n, func(path string, n *yaml.Node) { f.Rules = append(f.Rules, d.rule(path, n)) })
	default:
		set(d, &f.Filter, parseText)(path, n)
	}
}

func (d *decoder) rule(path string, n *yaml.Node) Rule {
	r := Rule{Action: ActionTake, Pos: d.at(n)}
	d.mapping(path, n, fields{
		"name":   set(d, &r.Name, parseText),
		"match":  set(d, &r.Match, parseText),
		"action": set(d, &r.Action, oneOf(allActions)),
	})
	return r
}

func readStages(d *decoder, f *Flow, _ any) read {
	return func(path string, n *yaml.Node) { d.stages(path, n, f) }
}

func (d *decoder) stages(path string, n *yaml.Node, f *Flow) {
	f.Stages = []Stage{}
	d.list(path, n, func(path string, n *yaml.Node) {
		s := Stage{Pos: d.at(n)}
		d.stage(path, n, &s)
		f.Stages = append(f.Stages, s)
	})
}

func (d *decoder) stage(path string, n *yaml.Node, s *Stage) {
	d.mapping(path, n, fields{
		"set": func(p string, n *yaml.Node) {
			s.Set = &Set{}
			d.setHeaders(p, n, s.Set)
		},
		"sequence": func(p string, n *yaml.Node) {
			s.Sequence = &Sequence{}
			d.mapping(p, n, fields{"offset": set(d, &s.Sequence.Offset, parseInt)})
		},
		"timestamp": func(p string, n *yaml.Node) {
			s.Timestamp = &Timestamp{}
			d.mapping(p, n, fields{"offset": set(d, &s.Timestamp.Offset, parseInt)})
		},
		"moldudp64": func(p string, n *yaml.Node) {
			s.Mold = &Feed{Gap: defaultGap, Hold: defaultHold, Ask: defaultAsk}
			d.mold(p, n, s.Mold)
		},
		"counter": func(p string, n *yaml.Node) {
			s.Counter = &Feed{Gap: defaultGap, Hold: defaultHold, Counter: &Counter{Width: defaultWidth, Order: BigEndian}}
			d.counter(p, n, s.Counter)
		},
		"sum": func(p string, n *yaml.Node) {
			s.Sum = &Sum{}
			d.mapping(p, n, fields{"type": set(d, &s.Sum.Type, oneOf(allSumTypes))})
		},
	})
}

func (d *decoder) setHeaders(path string, n *yaml.Node, s *Set) {
	d.mapping(path, n, fields{
		"mac_source":       set(d, &s.MACSource, parseMAC),
		"mac_destination":  set(d, &s.MACDestination, parseMAC),
		"vlan":             set(d, &s.VLAN, parseInt),
		"ip_source":        set(d, &s.IPSource, parseIP),
		"ip_destination":   set(d, &s.IPDestination, parseIP),
		"port_source":      set(d, &s.PortSource, parseInt),
		"port_destination": set(d, &s.PortDestination, parseInt),
	})
}
