package roce

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/unifiedd/unifiedd/bpf"
	"github.com/unifiedd/unifiedd/bpf/filter"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/roce/network"
	"github.com/unifiedd/unifiedd/rdma/roce/transport"
	"github.com/unifiedd/unifiedd/rdma/roce/wire"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/xdp"
)

// open opens an interface.
func open(name string, c Config) (*Device, error) {
	d := &Device{title: name, config: c, waiting: map[*transport.CompletionQueue]*completionQueue{}, pairs: map[*transport.QueuePair]bool{}}
	d.named("RoCE device " + name)
	d.events.signal.fd, d.progressLoop.signal.fd, d.groups.sockets = -1, -1, [2]int{-1, -1}
	if err := d.equip(); err != nil {
		return nil, errors.Join(fmt.Errorf("open %v: %w", d, err), d.closeAll())
	}
	return d, nil
}

// equip makes what the device has, in the order in which each is needed.
func (d *Device) equip() (err error) {
	if d.net, err = network.Open(d.title); err != nil {
		return err
	}
	for _, s := range []*signal{&d.events.signal, &d.progressLoop.signal} {
		if *s, err = newSignal(); err != nil {
			return err
		}
	}
	if err := d.groups.begin(d.net.Index()); err != nil {
		return err
	}
	if err := d.openBook(); err != nil {
		return err
	}
	if err := d.openSockets(); err != nil {
		return err
	}
	if err := d.makeEngine(); err != nil {
		return err
	}
	if err := d.stockUp(); err != nil {
		return err
	}
	if err := d.iface.Start(); err != nil {
		return err
	}
	d.progressLoop.begin(d)
	d.enlist()
	return nil
}

// openBook makes the places where frames of the device are.
func (d *Device) openBook() (err error) {
	m := &d.datapath
	m.region, m.data, m.chunk, m.start = d.config.Region, d.config.Region.Data(), uint64(d.config.Region.FrameSize()), time.Now()
	d.book = m.region.NewBook(d.String())
	if m.hands, err = d.book.NewHolder(umem.OwnerRDMA, d.String()); err != nil {
		return err
	}
	m.lent, err = d.book.NewHolder(umem.OwnerRDMA, d.String()+", on loan")
	return err
}

// ours is what the device takes of the packets that come. ARP, neighbour discovery and the rest are the kernel's.
var ours = fmt.Sprintf("udp dst port %[1]d or (vlan and udp dst port %[1]d) or (vlan and udp dst port %[1]d)", wire.Port)

// partsOfPacket is how many parts packets are reckoned with, for the size of the ring.
const partsOfPacket = 4

func (d *Device) openSockets() error {
	expr, err := filter.Parse(ours)
	if err != nil {
		return err
	}
	c := &d.config
	ring := max(c.Receive, c.Send*partsOfPacket)
	d.iface, err = xdp.Open(xdp.Config{
		Interface: d.title, Holder: d.datapath.hands, Policy: c.Policy, Shape: umem.Shape{Headroom: *c.Headroom, MultiBuffer: true},
		RingSize: uint32(ring), FillSize: uint32(c.Receive), Gather: true, Unstamped: true, Filter: expr, Mode: d.mode(),
	})
	return err
}

// mode is where the XDP program runs. Packets of a veth pair are the kernel's own anyway when they come: in front of its stack the program
// has them sooner than in the driver, which has a ring and a poll of its own for programs.
func (d *Device) mode() bpf.Mode {
	if d.net.Veth() && d.config.Policy != xdp.Require {
		return bpf.Generic
	}
	return bpf.Any
}

// makeEngine makes the protocol datapath, for packets as long as the sockets take.
func (d *Device) makeEngine() (err error) {
	m, c, g := &d.datapath, &d.config, d.iface.Granted()
	if d.progressLoop.mtu = mostMTU(d.net.MTU(), g); d.progressLoop.mtu == 0 {
		return fmt.Errorf("an MTU of %d is too short for RoCE: set it to 336 or more (ip link set %s mtu 1500)", d.net.MTU(), d.title)
	}
	if m.keys, err = transport.NewKeys(c.Region.Size(), c.Keys); err != nil {
		return err
	}
	m.engine, err = transport.New(transport.Config{
		Region: c.Region, Keys: m.keys, QueuePairs: c.QueuePairs, Generation: rand.Uint32(), MTU: d.progressLoop.mtu, Hold: hold,
	})
	if err != nil {
		return err
	}
	d.ports = d.iface.Ports()
	m.port = d.ports[0]
	for _, p := range d.ports {
		m.queues = append(m.queues, &queue{port: p, most: p.Limits().Supply})
	}
	m.prepare(c, g, d.progressLoop.mtu)
	m.readLocals(d.net)
	return nil
}

// mostMTU is the largest that the interface carries and the sockets take.
func mostMTU(mtu int, g xdp.Granted) rdma.MTU {
	if g.MaxPacket != 0 {
		const ethernet = 14 + 2*4 // with two VLAN tags, which are not reckoned in an interface's MTU
		mtu = min(mtu, int(g.MaxPacket)-ethernet)
	}
	return rdma.FitsInterface(mtu)
}

// prepare decides how packets are sent.
func (m *datapath) prepare(c *Config, g xdp.Granted, mtu rdma.MTU) {
	limits := m.port.Limits()
	m.stripped = g.TagsStripped
	m.offset = uint64(umem.Shape{Headroom: *c.Headroom}.Offset())
	m.most = limits.Frames
	m.gathers, m.copies = m.most >= 3, !g.ZeroCopy
	bytes := wire.MaxEnvelopeBytes + wire.MaxHeaderBytes + mtu.Bytes() + trailerBytes
	m.least = (bytes + int(m.chunk) - 1) / int(m.chunk)
	m.longest = (bytes + int(m.chunk-m.offset) - 1) / int(m.chunk-m.offset)
	switch {
	case c.CopyBelow > 0:
		m.copyBelow = uint32(c.CopyBelow)
	case c.CopyBelow == 0 && g.ZeroCopy:
		m.copyBelow = 256
	case c.CopyBelow == 0:
		m.copyBelow = 1024
	}
	room := m.chunk - wire.MaxEnvelopeBytes - wire.MaxHeaderBytes - trailerBytes
	m.short = uint32(min(max(uint64(m.copyBelow), 1)-1, room))
}

// stockUp takes the frames that the device has from the start.
func (d *Device) stockUp() error {
	m := &d.datapath
	n := loopbackFrames
	for _, q := range m.queues {
		n += q.most
	}
	if err := m.grow(n); err != nil {
		return err
	}
	heads, err := m.take(d.config.Send)
	if err != nil {
		return err
	}
	m.pool.headers = heads
	for _, q := range m.queues {
		m.supply(q)
		m.kick(q.port)
	}
	d.book.Publish()
	return nil
}
