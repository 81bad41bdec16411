package network

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/rdma"
)

// Connection is what the kernel's routing policy may ask for besides the addresses, when it looks up the route of a TCP
// connection's packets (see ip-rule(8)).
type Connection struct {
	LocalPort, RemotePort uint16
	Mark                  uint32 // SO_MARK
	UID                   uint32 // owner of the socket
	Bound                 int    // index of the interface that the socket is bound to; 0: none
	Class                 uint8  // IP_TOS or IPV6_TCLASS
}

// ResolveConnection is [Interface.Resolve] for segments that leave on behalf of a TCP connection of the kernel. Resolve
// finds a route out of this interface, whatever others there are. ResolveConnection asks which route the kernel's own
// packets of the connection take, and fails if that leads out of another interface.
func (i *Interface) ResolveConnection(ctx context.Context, place int, destination rdma.GID, c Connection) (Route, error) {
	w, err := i.resolve(ctx, place, destination, &c)
	if err != nil {
		return Route{}, fmt.Errorf("find the route to %v from %s: %w", destination, i.placeName(place), err)
	}
	return w, nil
}

// routeOf looks up the route of a connection's packets. The netlink package cannot ask with ports.
func (k *kernel) routeOf(w *Route) (found []netlink.Route, err error) {
	c, to, from := w.connection, w.Destination.Addr(), w.Source.Addr()
	bits := uint8(to.BitLen())
	family := uint8(unix.AF_INET6)
	if to.Is4() {
		family = unix.AF_INET
	}
	r := nl.NewNetlinkRequest(unix.RTM_GETROUTE, 0)
	r.Sockets = k.sockets
	r.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: family, Dst_len: bits, Src_len: bits, Tos: c.Class, Flags: unix.RTM_F_LOOKUP_TABLE}})
	word := func(kind int, v uint32) { r.AddData(nl.NewRtAttr(kind, binary.NativeEndian.AppendUint32(nil, v))) }
	port := func(kind int, v uint16) { r.AddData(nl.NewRtAttr(kind, binary.BigEndian.AppendUint16(nil, v))) }
	r.AddData(nl.NewRtAttr(unix.RTA_DST, to.AsSlice()))
	r.AddData(nl.NewRtAttr(unix.RTA_SRC, from.AsSlice()))
	r.AddData(nl.NewRtAttr(unix.RTA_IP_PROTO, []byte{unix.IPPROTO_TCP}))
	port(unix.RTA_SPORT, c.LocalPort)
	port(unix.RTA_DPORT, c.RemotePort)
	word(unix.RTA_MARK, c.Mark)
	word(unix.RTA_UID, c.UID)
	if c.Bound != 0 {
		word(unix.RTA_OIF, uint32(c.Bound))
	}
	answers, err := r.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE)
	for _, answer := range answers {
		one, err := parseRoute(answer)
		if err != nil {
			return nil, err
		}
		found = append(found, one)
	}
	return found, err
}

// parseRoute reads what follow needs of an answer.
func parseRoute(m []byte) (r netlink.Route, err error) {
	if len(m) < unix.SizeofRtMsg {
		return r, fmt.Errorf("%w: the answer has %d bytes", errUnknown, len(m))
	}
	head := nl.DeserializeRtMsg(m)
	r.Type, r.Table = int(head.Type), int(head.Table)
	attributes, err := nl.ParseRouteAttr(m[head.Len():])
	for _, a := range attributes {
		v := a.Value
		switch kind := a.Attr.Type; {
		case kind == unix.RTA_GATEWAY:
			r.Gw = net.IP(v)
		case kind == unix.RTA_VIA && len(v) > 2: // family and address
			r.Via = &netlink.Via{AddrFamily: int(binary.NativeEndian.Uint16(v)), Addr: net.IP(v[2:])}
		case kind == unix.RTA_OIF && len(v) == 4:
			r.LinkIndex = int(binary.NativeEndian.Uint32(v))
		case kind == unix.RTA_TABLE && len(v) == 4:
			r.Table = int(binary.NativeEndian.Uint32(v))
		case kind == unix.RTA_METRICS:
			err = parseMetrics(&r, v)
		}
	}
	return r, err
}

func parseMetrics(r *netlink.Route, b []byte) error {
	metrics, err := nl.ParseRouteAttr(b)
	for _, m := range metrics {
		if len(m.Value) != 4 {
			continue
		}
		switch v := int(binary.NativeEndian.Uint32(m.Value)); m.Attr.Type {
		case unix.RTAX_MTU:
			r.MTU = v
		case unix.RTAX_HOPLIMIT:
			r.Hoplimit = v
		}
	}
	return err
}

// nameOf names an interface in errors.
func (k *kernel) nameOf(index int) (name string) {
	name = fmt.Sprintf("interface %d", index)
	_ = k.ask(func(h *netlink.Handle) error {
		l, err := h.LinkByIndex(index)
		if err == nil {
			name = l.Attrs().Name
		}
		return err // without a name the index must do
	})
	return name
}
