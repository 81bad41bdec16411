package stream

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
)

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
