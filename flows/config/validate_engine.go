package config

import (
	"cmp"
	"slices"
)

// Bounds of From.Buffer. The kernel has 32 bits for the number of blocks and one for their bytes.
const (
	minBuffer = 2 * MiB
	maxBuffer = TiB
)

// Takes reports whether the flow takes packets away from the host, instead of copies.
func (f *From) Takes() bool { return f.Mirror == "" && f.Engine != EnginePacket }

// defaultEngine sets the engine if there is none: a mirror has copies anyhow, so it may have those of a packet
// socket, which cost least.
func (f *From) defaultEngine(kind Kind) {
	switch {
	case f.Engine != "" || kind != KindNetworkStorage:
	case f.Mirror != "":
		f.Engine = EngineAuto
	default:
		f.Engine = EngineXDP
	}
}

// engine checks the engine of a flow from an interface, and the settings that it does not have.
func (v *validator) engine(path string, f *Flow, kind Kind) {
	from := &f.From
	at, buffer := join(path, "from.engine"), join(path, "from.buffer")
	if v.explained(at) || kind != KindNetworkStorage {
		return
	}
	from.defaultEngine(kind)
	v.checkErr(at, member(from.Engine, allEngines))
	if from.Engine == EngineXDP {
		if v.given(buffer, from.bufferText()) {
			v.refuse(buffer, wrong("remove it, or say engine: packet", "is the ring of a packet socket, and this flow has none"))
		}
		if fanout := join(path, "from.fanout"); v.given(fanout, from.Fanout) {
			v.refuse(fanout, wrong("remove it, or say engine: packet", "divides packets among packet sockets, and this flow has none"))
		}
		return
	}
	v.check(within(from.Buffer, minBuffer, maxBuffer), buffer, "%s is not from %s to %s", from.Buffer, Size(minBuffer), Size(maxBuffer))
	if from.Engine == EnginePacket {
		v.passive(path, f)
	} else if key := f.needsXDP(); key != "" && from.Fanout != "" {
		v.refuse(join(path, "from.fanout"), wrong("remove one of them", "divides packets among packet sockets, and %s is only for AF_XDP sockets", key))
	}
}

func (f *From) bufferText() string {
	if f.Buffer == 0 {
		return ""
	}
	return f.Buffer.String()
}

// fanout checks that the flows that divide the packets of an interface have the same settings for them. If their
// filters differed, packets would go to flows that do not want them.
func (s *shared) fanout(path string, f *Flow) {
	name := f.From.Fanout
	if name == "" || f.From.Engine == EngineXDP {
		return
	}
	first, there := s.fanouts[name]
	if !there {
		s.fanouts[name] = &receiver{path: path, flow: f}
		return
	}
	for _, key := range []struct {
		name string
		a, b any
	}{
		{"from.interface", first.flow.From.Interface, f.From.Interface},
		{"from.engine", first.flow.From.Engine, f.From.Engine},
		{"from.filter", first.flow.From.Filter, f.From.Filter},
		{"from.mirror", first.flow.From.Mirror, f.From.Mirror},
	} {
		if at := join(path, key.name); key.a != key.b && !s.v.explained(at) {
			s.v.refuse(at, wrong("say the same in both", "is another than in %s%s, with which the flow shares fanout %s",
				first.path, s.v.inLine(first.path), quote(name)))
		}
	}
}

// passive refuses the settings that a packet socket does not have.
func (v *validator) passive(path string, f *Flow) {
	from := &f.From
	for _, s := range []struct {
		key    string
		has    bool
		reason string
	}{
		{"from.interfaces", from.Interfaces != nil, "a packet socket has one interface: make flows of them"},
		{"from.queues", from.Queues != nil, "a packet socket sees every queue"},
		{"from.zero_copy", from.ZeroCopy == ZeroCopyRequire, "the kernel copies packets to a packet socket"},
		{"from.ring", from.Ring != 0, "the ring of a packet socket is its buffer"},
		{"from.busy_poll", from.BusyPoll != 0, "a packet socket has no queues to poll"},
		{"from.steer", from.Steer != "", "a packet socket sees every queue"},
		{"from.beside", from.Beside != "", "a packet socket needs no program on the interface"},
		{"from.filter", from.Rules != nil || from.Object.File != "", "a packet socket takes one expression, and here are several rules or a program"},
		{"to.device", f.To.Device != "", "this release writes packets of a packet socket to files only"},
		{"to.layout", f.To.Layout == LayoutSlot, "packets of a packet socket are written from its ring, without a layout"},
		{"watermarks", f.Watermarks.High != 0, "packets of a packet socket are in its ring and not in frames"},
	} {
		if at := join(path, s.key); s.has && !v.explained(at) {
			v.refuse(at, wrong("remove it, or say engine: xdp", "has no meaning for engine: packet: %s", s.reason))
		}
	}
}

// ChosenEngine returns the engine of a flow from an interface to storage, and why, if the flow may choose. It
// returns EngineAuto if that depends on the driver.
func (f *Flow) ChosenEngine() (e Engine, why string) {
	from := f.From
	from.defaultEngine(f.Kind())
	switch key := f.needsXDP(); {
	case from.Engine != EngineAuto:
		return cmp.Or(from.Engine, EngineXDP), ""
	case key != "":
		return EngineXDP, key + " is set, which only AF_XDP sockets have"
	case f.From.Fanout != "":
		return EnginePacket, "fanout is set, which only packet sockets have"
	case f.From.Mirror != "":
		return EnginePacket, "mirror is set, so the host keeps its packets"
	case !f.From.TakeOver:
		return EnginePacket, "take_over is not set, so the host keeps its packets"
	}
	return EngineAuto, "take_over is set: xdp if the driver grants zero copy, else packet"
}

// passive reports whether the flow has a packet socket for certain.
func (f *Flow) passive() bool {
	e, _ := f.ChosenEngine()
	return f.Kind() == KindNetworkStorage && e == EnginePacket
}

// OnlyPacketSockets reports whether all flows have packet sockets for certain.
func (c *Config) OnlyPacketSockets() bool {
	return !slices.ContainsFunc(c.Flows, func(f Flow) bool { return !f.passive() })
}

// needsXDP returns the first setting of a flow with engine: auto that only an AF_XDP socket has; empty:
// there is none.
func (f *Flow) needsXDP() string {
	from := &f.From
	for _, s := range []struct {
		key string
		has bool
	}{
		{"interfaces", from.Interfaces != nil}, {"queues", from.Queues != nil}, {"zero_copy: require", from.ZeroCopy == ZeroCopyRequire},
		{"ring", from.Ring != 0}, {"busy_poll", from.BusyPoll != 0},
		{"steer", from.Steer != ""}, {"beside", from.Beside != ""}, {"rules", from.Rules != nil}, {"object", from.Object.File != ""},
		{"device", f.To.Device != ""}, {"layout: slot", f.To.Layout == LayoutSlot}, {"watermarks", f.Watermarks.High != 0},
	} {
		if s.has {
			return s.key
		}
	}
	return ""
}
