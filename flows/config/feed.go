package config

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"
)

// Feed takes packets of several lines, and gives out their messages once and in order. The packets are those of
// MoldUDP64, or plain ones with a counter.
type Feed struct {
	Lines   []FeedLine
	Gap     time.Duration // how long messages behind a gap wait for the missing ones
	Hold    int           // the most packets that wait
	Server  string        // address:port of a retransmission server of MoldUDP64; empty: none
	Ask     time.Duration // how long a gap is open before the server is asked; less than Gap
	Counter *Counter      // of plain packets; nil: MoldUDP64
}

// Counter is where plain packets have the number that counts them.
type Counter struct {
	Offset int // of its first byte in the UDP payload
	Width  int // bytes: 2, 4 or 8
	Order  ByteOrder
}

// FeedLine is one of the lines on which a feed arrives.
type FeedLine struct {
	Name    string
	Address netip.Addr // to which its packets go
	Port    int        // to which its packets go, of UDP
	Pos     Pos        // where the line is configured
}

// Bounds and defaults of a feed.
const (
	maxLines     = 8
	maxGap       = 10 * time.Second
	minHold      = 1
	maxHold      = 65536
	defaultGap   = 10 * time.Millisecond
	defaultAsk   = 2 * time.Millisecond
	defaultHold  = 1024
	maxWidth     = 8 // bytes of a counter
	defaultWidth = 8
	narrowHold   = 1 << 14 // packets of a counter of 2 bytes: so far behind a gap one is of the same session (feed.Counter)
)

// Feed returns the stage that puts messages in order, or nil.
func (f *Flow) Feed() *Feed {
	if len(f.Stages) == 1 {
		return cmp.Or(f.Stages[0].Mold, f.Stages[0].Counter)
	}
	return nil
}

// unplaced returns the stage without the places of its lines in the file; nil if there is none.
func (m *Feed) unplaced() *Feed {
	if m == nil {
		return nil
	}
	one := *m
	one.Lines = unplaced(one.Lines)
	return &one
}

// mold reads the stage moldudp64.
func (d *decoder) mold(path string, n *yaml.Node, m *Feed) {
	keys := d.feed(m)
	keys["server"], keys["ask"] = set(d, &m.Server, parseText), set(d, &m.Ask, parseDuration)
	d.mapping(path, n, keys)
}

// counter reads the stage counter.
func (d *decoder) counter(path string, n *yaml.Node, m *Feed) {
	keys := d.feed(m)
	keys["offset"], keys["width"] = set(d, &m.Counter.Offset, parseInt), set(d, &m.Counter.Width, parseInt)
	keys["order"] = set(d, &m.Counter.Order, oneOf(allByteOrders))
	d.mapping(path, n, keys)
}

// feed returns the keys that the stages of feeds have in common.
func (d *decoder) feed(m *Feed) fields {
	return fields{
		"gap":  set(d, &m.Gap, parseDuration),
		"hold": set(d, &m.Hold, parseInt),
		"lines": func(path string, n *yaml.Node) {
			d.list(path, n, func(path string, n *yaml.Node) {
				l := FeedLine{Pos: d.at(n)}
				d.mapping(path, n, fields{
					"name": set(d, &l.Name, parseText), "address": set(d, &l.Address, parseIP), "port": set(d, &l.Port, parseInt),
				})
				m.Lines = append(m.Lines, l)
			})
		},
	}
}

// feed checks the stage of a feed.
func (v *validator) feed(path string, m *Feed, f *Flow) {
	if !slices.Contains(fed, f.Kind()) {
		v.refuse(path, wrong("remove it", "has a meaning only for packets of a network interface to RDMA peers, an attached program, storage or an exchange"))
		return
	}
	v.check(len(f.Stages) == 1, path, "is possible only alone: the other stages are for packets, and messages leave this one")
	v.check(f.To.Place != PlaceHere, path, "gives out copies of messages, so to.place: here is not possible: say place: copy")
	v.check(len(m.Lines) > 0, v.first(join(path, "lines"), path), "lines with an address and a port each are needed")
	v.check(len(m.Lines) <= maxLines, join(path, "lines"), "%d lines are too many; at most %d are possible", len(m.Lines), maxLines)
	v.check(m.Gap > 0 && m.Gap <= maxGap, join(path, "gap"), "%s is not a time up to %s", m.Gap, maxGap)
	v.check(within(m.Hold, minHold, maxHold), join(path, "hold"), "%d is not from %d to %d", m.Hold, minHold, maxHold)
	v.fedStorage(path, f)
	if c := m.Counter; c != nil {
		v.check(within(c.Offset, 0, maxUDP-maxWidth), v.first(join(path, "offset"), path), "%d is not from 0 to %d", c.Offset, maxUDP-maxWidth)
		v.check(c.Width == 2 || c.Width == 4 || c.Width == 8, v.first(join(path, "width"), path), "the counter has a width of 2, 4 or 8 bytes, and not of %d", c.Width)
		v.checkErr(join(path, "order"), member(c.Order, allByteOrders))
		v.check(c.Width != 2 || m.Hold <= narrowHold, v.first(join(path, "hold"), path), "%d packets are more than numbers of 2 bytes tell apart; at most %d are possible", m.Hold, narrowHold)
	} else {
		v.server(path, m)
	}
	v.feedLines(join(path, "lines"), m)
}

// fedStorage refuses settings of a flow to storage that are about packets as they arrived.
func (v *validator) fedStorage(path string, f *Flow) {
	if f.Kind() != KindNetworkStorage {
		return
	}
	if engine, _ := f.ChosenEngine(); engine != EngineXDP {
		v.refuse(path, wrong("say from.engine: xdp, and not mirror", "needs packets in frames, and a packet socket has them in its ring"))
	}
	v.check(!f.To.Index, path, "gives out messages without headers, of which there is no index: remove to.index")
}

// server checks the retransmission server.
func (v *validator) server(path string, m *Feed) {
	if at := join(path, "server"); v.given(at, m.Server) && !v.explained(at) {
		if to, err := netip.ParseAddrPort(m.Server); err != nil || to.Port() == 0 || to.Addr().IsMulticast() || to.Addr().IsUnspecified() {
			v.refuse(at, wrong("write it as 10.0.0.9:26401 or [2001:db8::9]:26401", "%s is not the address and the port of a server", quote(m.Server)))
		}
		v.check(m.Ask > 0 && m.Ask < m.Gap, v.first(join(path, "ask"), at), "%s is not less than gap, which is %s: the server must have time to answer", m.Ask, m.Gap)
	} else if at := join(path, "ask"); v.given(at, "") {
		v.refuse(at, wrong("remove it, or add server", "there is no server to ask"))
	}
}

func (v *validator) feedLines(path string, m *Feed) {
	names, ends := newTaken[string](v, "line"), map[netip.AddrPort]bool{}
	for i := range m.Lines {
		l, at := &m.Lines[i], index(path, i)
		v.name(join(at, "name"), l.Name)
		names.take(join(at, "name"), l.Name)
		v.check(within(l.Port, 1, maxPort), v.first(join(at, "port"), at), "port %d is not from 1 to %d", l.Port, maxPort)
		switch end := netip.AddrPortFrom(l.Address, uint16(l.Port)); {
		case v.explained(join(at, "address")):
		case !l.Address.IsValid():
			v.refuse(at, errors.New("the address is needed to which the packets of the line go"))
		case ends[end]:
			v.refuse(at, wrong("make it one line", "%s is the address of another line", end))
		default:
			ends[end] = true
		}
	}
}
