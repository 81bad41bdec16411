package config

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

func (d *decoder) flows(path string, n *yaml.Node, c *Config) {
	d.list(path, n, func(path string, n *yaml.Node) {
		f := Flow{Pos: d.at(n)}
		d.flow(path, n, &f)
		d.fill(path, &f)
		c.Flows = append(c.Flows, f)
	})
}

func (d *decoder) flow(path string, n *yaml.Node, f *Flow) {
	d.mapping(path, n, fields{
		"name":   set(d, &f.Name, parseText),
		"worker": set(d, &f.Worker, parseText),
		"from":   func(p string, n *yaml.Node) { d.from(p, n, &f.From) },
		"stages": func(p string, n *yaml.Node) { d.stages(p, n, f) },
		"to":     func(p string, n *yaml.Node) { d.to(p, n, &f.To) },
		"watermarks": func(p string, n *yaml.Node) {
			d.mapping(p, n, fields{"high": set(d, &f.Watermarks.High, parseInt), "low": set(d, &f.Watermarks.Low, parseInt)})
		},
	})
}

func (d *decoder) from(path string, n *yaml.Node, f *From) {
	d.mappingWhere(path, n, fields{
		"interface":     set(d, &f.Interface, parseText),
		"interfaces":    func(p string, n *yaml.Node) { d.interfaces(p, n, f) },
		"comment":       set(d, &f.Comment, parseText),
		"queues":        func(p string, n *yaml.Node) { d.queues(p, n, f) },
		"zero_copy":     set(d, &f.ZeroCopy, oneOf(allZeroCopies)),
		"filter":        func(p string, n *yaml.Node) { d.filter(p, n, f) },
		"ring":          set(d, &f.Ring, parseInt),
		"busy_poll":     set(d, &f.BusyPoll, parseDuration),
		"timestamps":    set(d, &f.Timestamps, oneOf(allTimestamps)),
		"promiscuous":   set(d, &f.Promiscuous, parseBool),
		"mirror":        set(d, &f.Mirror, oneOf(allMirrors)),
		"steer":         set(d, &f.Steer, oneOf(allSteers)),
		"beside":        set(d, &f.Beside, oneOf(allBesides)),
		"priority":      set(d, &f.Priority, parseInt),
		"take_over":     set(d, &f.TakeOver, parseBool),
		"rdma":          set(d, &f.RDMA, parseText),
		"listen":        set(d, &f.Listen, parseText),
		"message":       set(d, &f.Message, parseSome),
		"window":        set(d, &f.Window, parseInt),
		"clients":       set(d, &f.Clients, parseInt),
		"allow":         texts(d, &f.Allow),
		"allow_any_gid": set(d, &f.AllowAnyGID, parseBool),
		"verify":        set(d, &f.Verify, parseBool),
		"method":        set(d, &f.Method, oneOf(allMethods)),
		"file":          set(d, &f.File, parseText),
		"files":         texts(d, &f.Files),
		"loop":          set(d, &f.Loop, parseLoop),
		"device":        set(d, &f.Device, parseText),
		"generate":      set(d, &f.Generate, parseSome),
		"rate":          set(d, &f.Rate, parseInt),
	}, fitsFrom)
}

// interfaces reads a list of names, or of mappings which give a comment, too.
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

// queues reads a list of numbers or the word all.
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

func (d *decoder) to(path string, n *yaml.Node, t *To) {
	d.mappingWhere(path, n, fields{
		"file":           set(d, &t.File, parseText),
		"device":         set(d, &t.Device, parseText),
		"force":          set(d, &t.Force, parseBool),
		"comment":        set(d, &t.Comment, parseText),
		"layout":         set(d, &t.Layout, oneOf(allLayouts)),
		"segment":        func(p string, n *yaml.Node) { d.segment(p, n, &t.Segment) },
		"prepare":        set(d, &t.Prepare, oneOf(allPrepares)),
		"snaplen":        set(d, &t.Snaplen, parseSize),
		"keep_free":      set(d, &t.KeepFree, ParseRoom),
		"mode":           set(d, &t.Mode, ParseMode),
		"owner":          set(d, &t.Owner, parseText),
		"index":          set(d, &t.Index, parseBool),
		"flush":          set(d, &t.Flush, parseDuration),
		"durable":        set(d, &t.Durable, parseDurable),
		"rdma":           set(d, &t.RDMA, parseText),
		"peers":          func(p string, n *yaml.Node) { d.peers(p, n, t) },
		"choose":         set(d, &t.Choose, oneOf(allChoices)),
		"queue":          set(d, &t.Queue, parseInt),
		"method":         set(d, &t.Method, oneOf(peerMethods)),
		"durability":     set(d, &t.Durability, oneOf(logAcknowledges)),
		"participant":    set(d, &t.Participant, parseInt),
		"acknowledge":    set(d, &t.Acknowledge, parseAcknowledge),
		"listen":         set(d, &t.Listen, parseText),
		"cache":          set(d, &t.Cache, parseSize),
		"transfer":       set(d, &t.Transfer, parseSize),
		"window":         set(d, &t.Window, parseInt),
		"clients":        set(d, &t.Clients, parseInt),
		"allow":          texts(d, &t.Allow),
		"allow_any_gid":  set(d, &t.AllowAnyGID, parseBool),
		"subsystem":      set(d, &t.Subsystem, parseText),
		"hosts":          texts(d, &t.Hosts),
		"allow_any_host": set(d, &t.AllowAnyHost, parseBool),
		"keys":           set(d, &t.Keys, parseText),
		"group":          set(d, &t.Group, oneOf(allAuthGroups)),
		"read_only":      set(d, &t.ReadOnly, parseBool),
		"namespaces":     func(p string, n *yaml.Node) { d.namespaces(p, n, &t.Namespaces) },
		"subsystems":     func(p string, n *yaml.Node) { d.subsystems(p, n, t) },
		"interface":      set(d, &t.Interface, parseText),
		"zero_copy":      set(d, &t.ZeroCopy, oneOf(allZeroCopies)),
		"ring":           set(d, &t.Ring, parseInt),
		"pace":           set(d, &t.Pace, ParsePace),
		"spin":           set(d, &t.Spin, parseDuration),
		"late":           set(d, &t.Late, parseDuration),
		"max_gap":        set(d, &t.MaxGap, parseDuration),
		"discard":        func(p string, n *yaml.Node) { d.discard(p, n, t) },
	}, fitsTo)
}

// discard reads a word that can only be true, and takes it for that.
func (d *decoder) discard(path string, n *yaml.Node, t *To) {
	t.Discard = true
	set(d, new(bool), parseTrue)(path, n)
}

func (d *decoder) segment(path string, n *yaml.Node, s *Segment) {
	d.mapping(path, n, fields{
		"size":  set(d, &s.Size, parseSize),
		"every": set(d, &s.Every, parseDuration),
		"keep":  set(d, &s.Keep, parseInt),
	})
}

func (d *decoder) peers(path string, n *yaml.Node, t *To) {
	d.list(path, n, func(path string, n *yaml.Node) {
		p := Peer{Pos: d.at(n)}
		d.mapping(path, n, fields{
			"name":    set(d, &p.Name, parseText),
			"address": set(d, &p.Address, parseText),
			"flow":    set(d, &p.Flow, parseText),
			"policy":  set(d, &p.Policy, oneOf(allPolicies)),
		})
		t.Peers = append(t.Peers, p)
	})
}

func (d *decoder) subsystems(path string, n *yaml.Node, t *To) {
	d.list(path, n, func(path string, n *yaml.Node) {
		one := Subsystem{Pos: d.at(n)}
		d.mapping(path, n, fields{
			"subsystem":      set(d, &one.NQN, parseText),
			"hosts":          texts(d, &one.Hosts),
			"allow_any_host": set(d, &one.AllowAnyHost, parseBool),
			"namespaces":     func(p string, n *yaml.Node) { d.namespaces(p, n, &one.Namespaces) },
		})
		t.Subsystems = append(t.Subsystems, one)
	})
}

func (d *decoder) namespaces(path string, n *yaml.Node, to *[]Namespace) {
	d.list(path, n, func(path string, n *yaml.Node) {
		one := Namespace{Pos: d.at(n)}
		d.mapping(path, n, fields{
			"id":        set(d, &one.ID, parseInt),
			"file":      set(d, &one.File, parseText),
			"device":    set(d, &one.Device, parseText),
			"read_only": set(d, &one.ReadOnly, parseBool),
		})
		*to = append(*to, one)
	})
}

// texts reads a list of texts; an empty one is not nil.
func texts(d *decoder, dst *[]string) read {
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
