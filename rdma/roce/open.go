package roce

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
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
	d.life.SetName("RoCE device " + name)
	d.events.signal.fd, d.progressLoop.signal.fd, d.groups.sockets = -1, -1, [2]int{-1, -1}
	if err := d.equip(); err != nil {
		return nil, errors.Join(fmt.Errorf("open %v: %w", d, err), d.closeAll())
	}
	return d, nil
}

// equip makes the parts of the device, in the order in which they depend on each other.
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
	if err := d.takeFrames(); err != nil {
		return err
	}
	if err := d.iface.Start(); err != nil {
		return err
	}
	d.progressLoop.begin(d)
	d.enlist()
	return nil
}

// openBook makes the holders of the device's frames.
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

// ours selects the packets that the device receives. ARP, neighbour discovery and all other packets
// go to the kernel.
var ours = fmt.Sprintf("udp dst port %[1]d or (vlan and udp dst port %[1]d) or (vlan and udp dst port %[1]d)", wire.Port)

// partsOfPacket is the number of parts per packet that the size of the ring allows for.
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

// mode returns where the XDP program runs. On a veth pair that is generic mode: the kernel
// already has the packets. They reach the program sooner in front of the kernel's stack than in the
// driver, which has its own ring and poll for XDP.
func (d *Device) mode() bpf.Mode {
	if d.net.Veth() && d.config.Policy != xdp.Require {
		return bpf.Generic
	}
	return bpf.Any
}

// makeEngine makes the protocol engine, for packets as long as the sockets take.
func (d *Device) makeEngine() (err error) {
	m, c, g := &d.datapath, &d.config, d.iface.Granted()
	if d.progressLoop.mtu = maxMTU(d.net.MTU(), g); d.progressLoop.mtu == 0 {
		return fmt.Errorf("an MTU of %d is too short for RoCE: set it to 336 or more (ip link set %s mtu 1500)", d.net.MTU(), d.title)
	}
	if m.keys, err = transport.NewKeys(c.Region.Size(), c.Keys); err != nil {
		return err
	}
	m.engine, err = transport.New(transport.Config{
		Region: c.Region, Keys: m.keys, QueuePairs: c.QueuePairs, Generation: rand.Uint32(), MTU: d.progressLoop.mtu, Hold: hold,
		Rate: c.rateOf(d.net.Rate()),
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

// maxMTU returns the largest MTU that the interface and the sockets carry.
func maxMTU(mtu int, g xdp.Granted) rdma.MTU {
	if g.MaxPacket != 0 {
		const ethernet = 14 + 2*4 // with two VLAN tags, which an interface's MTU does not include
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
	m.slices = firstSlice(m.region)
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

// firstSlice returns the first address of memory that programs of the host map; the end of the region if there is none.
func firstSlice(r *umem.Region) uint64 {
	first := r.Size()
	for _, s := range r.Slices() {
		for _, p := range []*umem.Part{s.In, s.Out} {
			if p != nil {
				first = min(first, p.Base())
			}
		}
	}
	return first
}

// takeFrames takes the frames that the device uses from its start.
func (d *Device) takeFrames() error {
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

// Provider opens network interfaces as RDMA devices. It may be used from any goroutine.
type Provider struct{ config Config }

var _ rdma.Provider = (*Provider)(nil)

// NewProvider makes a provider whose devices register and use one region.
func NewProvider(c Config) (*Provider, error) {
	c.setDefaults()
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("make the provider roce: %w", err)
	}
	return &Provider{c}, nil
}

// Name is "roce".
func (p *Provider) Name() string { return "roce" }

// Devices returns the Ethernet interfaces in the caller's network namespace that are up and have an
// address, sorted by name.
func (p *Provider) Devices() ([]string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	names := []string{}
	for _, i := range all {
		if usable(i) {
			names = append(names, i.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func usable(i net.Interface) bool {
	const need = net.FlagUp | net.FlagRunning
	if i.Flags&(need|net.FlagLoopback) != need || len(i.HardwareAddr) != 6 {
		return false
	}
	addrs, err := i.Addrs()
	return err == nil && len(addrs) > 0
}

// Open opens an interface in the network namespace of the calling thread, with all of its queues.
// It returns a *Device, which the caller closes. From then on the device receives the interface's
// RoCE v2 packets, and the kernel all others.
func (p *Provider) Open(name string) (rdma.Device, error) {
	d, err := open(name, p.config)
	if errors.Is(err, network.ErrInterfaceGone) {
		names, _ := p.Devices()
		return nil, fmt.Errorf("%w; with an address and up are: %s", err, strings.Join(append(names, "no others"), ", "))
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Config says how devices are opened. The zero value of each field but Region selects a default.
type Config struct {
	// Region is the memory of requests and packets. A device takes frames of its pool when it is opened: for each queue as
	// many as Receive says, and as many as Send says for headers.
	Region *umem.Region
	// Receive is how many frames each queue of the interface keeps with the kernel for packets to arrive in, a power of two.
	// A READ is answered in one burst, which must fit. Default 2048; drivers may need more.
	Receive int
	// Send is how many packets may be on their way to the card at once, with four parts each; default 512.
	Send int
	// Policy reports whether the kernel may copy packets on their way.
	Policy xdp.Policy
	// CopyBelow is the payload in bytes below which a packet is copied into one piece, and not
	// gathered from where its payload lies: each part costs the kernel or the card a little.
	// Default 1024 if the kernel copies, 256 if it does not. Less than 0: no packet is copied for
	// being short. Inline data, retransmissions, and all payloads on sockets that take packets in
	// one part are copied in any case.
	CopyBelow int
	// QueuePairs is the largest number of queue pairs at a time; default 1024.
	QueuePairs int
	// Keys is the largest number of registrations and memory windows together; default 4096.
	Keys int
	// Headroom is how many bytes stay free before each packet. Default 202: the payload of an IPv4
	// SEND then begins at a multiple of 512, after the kernel's 256 bytes and the headers, as
	// direct I/O requires.
	Headroom *uint32
	// Rate says how queue pairs whose packets are ECN capable react to congestion. If Line is 0, it is the rate of the
	// interface.
	Rate transport.RateControl
}

// defaultHeadroom places the payload of a SEND over IPv4 without a VLAN tag at offset 512.
const defaultHeadroom = 202

func (c *Config) setDefaults() {
	if c.Receive == 0 {
		c.Receive = 2048
	}
	if c.Send == 0 {
		c.Send = 512
	}
	if c.QueuePairs == 0 {
		c.QueuePairs = 1024
	}
	if c.Keys == 0 {
		c.Keys = 4096
	}
	if c.Headroom == nil {
		c.Headroom = new(uint32)
		*c.Headroom = defaultHeadroom
	}
}

// Frames returns how many frames a device takes from the region, if its interface has that number
// of receive queues and its driver needs no more. Queue pairs with loans take more.
func (c Config) Frames(queues int) int64 {
	c.setDefaults()
	return int64(queues*c.Receive) + int64(c.Send) + loopbackFrames
}

// loopbackFrames is the least number of frames for packets that a device sends to itself, at any
// MTU.
const loopbackFrames = 4 * batch

// defaultRate is that of an interface whose driver does not tell, in bits per second.
const defaultRate = 10_000_000_000

// rateOf returns the rate control of an interface whose rate is line.
func (c *Config) rateOf(line uint64) transport.RateControl {
	r := c.Rate
	if r.Line == 0 {
		r.Line = cmp.Or(line, defaultRate)
	}
	r.Least = min(r.Least, r.Line)
	return r
}

func (c *Config) check() error {
	switch {
	case c.Region == nil:
		return errors.New("it needs the region that devices are to register")
	case c.Receive < 64 || c.Receive > 1<<16 || bits.OnesCount(uint(c.Receive)) != 1:
		return fmt.Errorf("the number Receive is %d: it must be a power of two from 64 to 65536", c.Receive)
	case c.Send < 8 || c.Send > 1<<14 || bits.OnesCount(uint(c.Send)) != 1:
		return fmt.Errorf("the number Send is %d: it must be a power of two from 8 to 16384", c.Send)
	case c.QueuePairs < 1 || c.QueuePairs > 1<<16:
		return fmt.Errorf("the number QueuePairs is %d: it must be 1 to 65536", c.QueuePairs)
	}
	_, err := transport.NewKeys(c.Region.Size(), c.Keys)
	return err
}
