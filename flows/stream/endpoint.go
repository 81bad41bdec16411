package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// Doer runs a function on the worker's thread, between two rounds, and waits for it. Its error is the
// function's, or says that the worker has ended.
type Doer func(func() error) error

// Endpoint is an RDMA device with the region registered: what all streams over that device share. It may be used
// from any goroutine, and is not changed once it is made.
type Endpoint struct {
	Device rdma.Device
	Domain rdma.ProtectionDomain
	Memory rdma.MemoryRegion // the whole region, with LocalWrite; peers reach none of it
	Region *umem.Region
	Port   uint8 // of the device, from 1
}

// OpenEndpoint registers a region with a device, for port 1. The device stays the caller's, who closes it after the
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

// Close ends the registration. Streams are closed before; the error names what is left, and Close may be called
// again.
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

// What queue pairs of streams have. An acknowledgement is waited for 268 ms and six times more, so that a machine that is
// busy is not taken for one that is gone; the TCP connection tells sooner. A receive is waited for without end: the other
// side's worker posts them, and it may be asleep for longer than the device counts.
const (
	ackTimeout = 16
	ackRetries = 6
	rnrRetries = 7
)

// Settings are how a queue pair to a peer is connected, from the address that the device has for it. The zero Addr
// stands for any peer.
func (e *Endpoint) Settings(peer netip.Addr) (connect.Settings, error) {
	s := connect.Defaults()
	s.Port, s.Timeout, s.Retries, s.RNRRetries = e.Port, ackTimeout, ackRetries, rnrRetries
	table, err := e.Device.GIDs(e.Port)
	if err == nil {
		s.GID, err = rdma.ChooseGID(table, peer)
	}
	if err != nil {
		return s, fmt.Errorf("choose an address of RDMA device %s: %w", e.Device.Name(), err)
	}
	return s, nil
}

// SettingsTo are the Settings to who listens at a TCP address, whose name is looked up.
func (e *Endpoint) SettingsTo(ctx context.Context, address string) (connect.Settings, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return connect.Settings{}, fmt.Errorf("look up the peer's address: %w", err)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return e.Settings(ip.WithZone(""))
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return connect.Settings{}, fmt.Errorf("look up the peer's address: %w", err)
	}
	return e.Settings(found[0].WithZone(""))
}

// CheckGID refuses a peer whose queue pair is at another address than its connection comes from: it could have packets sent to a third machine. A
// connection from this machine may name any of its addresses. On InfiniBand GIDs are no IP addresses, and nothing is refused. It is for both
// kinds of servers.
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

// isHere reports whether an address is this machine's.
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
