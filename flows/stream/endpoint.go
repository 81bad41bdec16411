package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// Doer runs a function on the worker's thread between two rounds, and waits for it. It returns the
// error of the function, or an error that says that the worker has ended.
type Doer func(func() error) error

// Endpoint is an RDMA device with the region registered. All streams over the device share it. It
// may be used from any goroutine, and does not change.
type Endpoint struct {
	Device rdma.Device
	Domain rdma.ProtectionDomain
	Memory rdma.MemoryRegion // the whole region, with LocalWrite and no remote access
	Region *umem.Region
	Port   uint8 // of the device, from 1
	Class  Class
}

// Class says how the network treats the packets of queue pairs: data, ACKs and CNPs alike.
type Class struct {
	TrafficClass uint8 // byte of the IP header: DSCP in the upper six bits, ECN in the lower two
	// Priority is the service level, 0 to 7. On a VLAN it is the priority of the tag (PCP).
	Priority uint8
}

// WithClass returns an Endpoint with the same objects, whose queue pairs have a class. The caller closes only e.
func (e *Endpoint) WithClass(c Class) *Endpoint {
	other := *e
	other.Class = c
	return &other
}

// OpenEndpoint registers a region with a device, for port 1. The caller closes the device after the
// Endpoint.
func OpenEndpoint(d rdma.Device, r *umem.Region) (*Endpoint, error) {
	e := &Endpoint{Device: d, Region: r, Port: 1}
	if err := e.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare RDMA device %s: %w", d.Name(), err), e.Close())
	}
	return e, nil
}

func (e *Endpoint) open() (err error) {
	if e.Domain, err = e.Device.NewProtectionDomain(); err != nil {
		return err
	}
	e.Memory, err = e.Domain.Register(e.Region, rdma.LocalWrite)
	return err
}

// Close ends the registration. Streams must be closed before. If something is still open, the error
// names it, and Close may be called again.
func (e *Endpoint) Close() error {
	if e.Memory != nil {
		if err := e.Memory.Close(); err != nil {
			return err
		}
		e.Memory = nil
	}
	if e.Domain != nil {
		if err := e.Domain.Close(); err != nil {
			return err
		}
		e.Domain = nil
	}
	return nil
}

// Parameters of queue pairs. The timeout for an ACK is 268 ms, with six retries, so that a busy
// machine is not mistaken for a dead one; the TCP connection reports a dead one earlier. Retries
// after receiver-not-ready have no limit: the worker of the other side posts the receives, and it
// may sleep for longer than the device retries.
const (
	ackTimeout = 16
	ackRetries = 6
	rnrRetries = 7
)

// Settings returns the settings for a queue pair to a peer. They use the local address of the TCP connection if the device has
// it, because the peer expects it, and else another one of the peer's family. The zero Addr stands for any peer, and for a
// local address that is not known.
func (e *Endpoint) Settings(local, peer netip.Addr) (connect.Settings, error) {
	s := connect.Defaults()
	s.Port, s.Timeout, s.Retries, s.RNRRetries = e.Port, ackTimeout, ackRetries, rnrRetries
	s.TrafficClass, s.SL = e.Class.TrafficClass, e.Class.Priority
	table, err := e.Device.GIDs(e.Port)
	if err == nil {
		own := slices.DeleteFunc(slices.Clone(table), func(g rdma.GIDEntry) bool { return g.GID.Addr().Unmap() != local })
		if s.GID, err = rdma.ChooseGID(own, peer); err != nil {
			s.GID, err = rdma.ChooseGID(table, peer)
		}
	}
	if err != nil {
		return s, fmt.Errorf("choose an address of RDMA device %s: %w", e.Device.Name(), err)
	}
	return s, nil
}

// SettingsTo is Settings for a TCP address, whose host name it looks up.
func (e *Endpoint) SettingsTo(ctx context.Context, address string) (connect.Settings, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return connect.Settings{}, fmt.Errorf("look up the peer's address: %w", err)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return e.Settings(sourceTo(ip), ip.WithZone(""))
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return connect.Settings{}, fmt.Errorf("look up the peer's address: %w", err)
	}
	return e.Settings(sourceTo(found[0]), found[0].WithZone(""))
}

// sourceTo returns the address from which the kernel would send to a peer; the zero Addr if there is no route. Nothing is sent.
func sourceTo(peer netip.Addr) netip.Addr {
	const anyPort = 9
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(peer, anyPort)))
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone("")
}

// CheckGID refuses a peer whose queue pair has another address than its connection. Such a peer
// could make this machine send packets to a third one. A connection from this machine may name any
// of its addresses. CheckGID does not check GIDs of InfiniBand, which are not IP addresses.
func (e *Endpoint) CheckGID(q *connect.Request) error {
	port, err := e.Device.Port(e.Port)
	if err != nil {
		return err
	}
	tcp, ok := q.Peer().Addr.(*net.TCPAddr)
	if !ok || port.LinkLayer != rdma.LinkEthernet {
		return nil
	}
	from := tcp.AddrPort().Addr().Unmap().WithZone("")
	gid := q.Remote().Parameters.GID.Addr().Unmap()
	switch {
	case gid == from:
		return nil
	case e.isHere(from) && e.isHere(gid):
		return nil
	}
	return fmt.Errorf("%w: GID %v, connection from %v (must be equal, or set allow_any_gid: true)", protocol.NotPermitted, gid, from)
}

// isHere reports whether an address belongs to this machine.
func (e *Endpoint) isHere(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	if table, err := e.Device.GIDs(e.Port); err == nil {
		for _, g := range table {
			if g.GID.Addr().Unmap() == a {
				return true
			}
		}
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, one := range all {
		if p, err := netip.ParsePrefix(one.String()); err == nil && p.Addr().Unmap().WithZone("") == a {
			return true
		}
	}
	return false
}
