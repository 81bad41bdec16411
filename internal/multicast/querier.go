package multicast

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Querier is who asks for the members of groups on a link.
type Querier struct {
	Address  netip.Addr
	Protocol string        // IGMPv1, IGMPv2, IGMPv3, MLDv1 or MLDv2
	After    time.Duration // from the beginning of Listen until its query
}

// ErrNoQuerier is returned if nobody asks for members in time.
var ErrNoQuerier = errors.New("no querier is heard")

// Groups that Listen joins and leaves again. They are for use within a site or an organization, and nobody is
// expected to send to them.
var (
	probe4 = netip.AddrFrom4([4]byte{239, 255, 119, 119})
	probe6 = netip.MustParseAddr("ff15::7577:7577")
)

// Listen waits for a query of IGMP, or with v6 of MLD, that arrives on an interface. It does not wait for the
// regular ones, which come every two minutes: it joins a group and leaves it again, and a querier then asks at once
// whether other members remain (RFC 3376, section 6.6.3). wait bounds the time. The error is ErrNoQuerier if nobody
// has asked. The calling thread must be in the network namespace of the interface, with CAP_NET_RAW.
func Listen(name string, v6 bool, wait time.Duration) (q Querier, err error) {
	group, protocol := probe4, unix.ETH_P_IP
	if v6 {
		group, protocol = probe6, unix.ETH_P_IPV6
	}
	begun := time.Now()
	probe := Set{}
	if err := probe.Open([]Join{{Interface: name, Group: group}}); err != nil {
		return q, err
	}
	fd, err := listener(name, protocol)
	if err != nil {
		return q, errors.Join(err, probe.Close())
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	time.Sleep(min(wait/4, settle)) // the report must be with the querier before the leave
	if err := probe.Close(); err != nil {
		return q, err
	}
	return await(fd, begun, begun.Add(wait))
}

// settle is longer than the kernel takes for the first report of a new membership.
const settle = 300 * time.Millisecond

// listener opens a packet socket that gets every multicast packet of an interface which is for the host, from the IP header on.
func listener(name string, protocol int) (int, error) {
	network := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, uint16(protocol)))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open a packet socket: %w (grant CAP_NET_RAW)", err)
	}
	m := member{join: Join{Interface: name}, fd: fd}
	index, err := m.find()
	if err == nil {
		err = unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_ALLMULTI})
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: network, Ifindex: index})
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("listen on %s: %w", name, err), unix.Close(fd))
	}
	return fd, nil
}

// await reads packets until one is a query.
func await(fd int, begun, end time.Time) (Querier, error) {
	packet := make([]byte, 2048)
	for {
		left := time.Until(end)
		if left <= 0 {
			return Querier{}, ErrNoQuerier
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		switch {
		case errors.Is(err, unix.EINTR), err == nil && n == 0:
			continue
		case err != nil:
			return Querier{}, fmt.Errorf("wait for a query: %w", err)
		}
		n, err = unix.Read(fd, packet)
		if err != nil {
			return Querier{}, fmt.Errorf("wait for a query: %w", err)
		}
		if q, is := parseQuery(packet[:n]); is {
			q.After = time.Since(begun)
			return q, nil
		}
	}
}

// Types and lengths of messages of IGMP and MLD (RFC 3376, RFC 3810).
const (
	igmpQuery  = 0x11
	mldQuery   = 130
	protoIGMP  = 2
	hopByHop   = 0
	protoICMP6 = 58
	query2Len  = 8  // of IGMPv1 and IGMPv2; those of IGMPv3 are longer
	mld1Len    = 24 // of MLDv1; those of MLDv2 are longer
)

// parseQuery reads a packet that begins with the IP header, from anybody.
func parseQuery(p []byte) (q Querier, is bool) {
	switch {
	case len(p) >= 20 && p[0]>>4 == 4:
		return parseIGMP(p)
	case len(p) >= 48 && p[0]>>4 == 6:
		return parseMLD(p)
	}
	return q, false
}

func parseIGMP(p []byte) (q Querier, is bool) {
	header, total := int(p[0]&15)*4, int(binary.BigEndian.Uint16(p[2:]))
	fragment := binary.BigEndian.Uint16(p[6:]) & 0x3fff
	if p[9] != protoIGMP || fragment != 0 || header < 20 || total > len(p) || total < header+query2Len || p[header] != igmpQuery {
		return q, false
	}
	q = Querier{Address: netip.AddrFrom4([4]byte(p[12:16])), Protocol: "IGMPv3"}
	if total == header+query2Len {
		q.Protocol = "IGMPv2"
		if p[header+1] == 0 {
			q.Protocol = "IGMPv1"
		}
	}
	return q, true
}

// parseMLD reads a message behind a hop-by-hop header with a router alert, as all of MLD has.
func parseMLD(p []byte) (q Querier, is bool) {
	end := 40 + int(binary.BigEndian.Uint16(p[4:]))
	at := 40 + int(p[41])*8 + 8
	if p[6] != hopByHop || p[40] != protoICMP6 || end > len(p) || at+mld1Len > end || p[at] != mldQuery {
		return q, false
	}
	q = Querier{Address: netip.AddrFrom16([16]byte(p[8:24])), Protocol: "MLDv2"}
	if end == at+mld1Len {
		q.Protocol = "MLDv1"
	}
	return q, true
}
