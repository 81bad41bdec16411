package order

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/unifiedd/unifiedd/flows/config"
)

// maxAddresses is how many addresses of a name are tried.
const maxAddresses = 8

// Addresses returns where an exchange is: of to.order.connect, whose host may be a name. Then it looks the name up, and
// waits as long as ctx permits. It returns at least one address, and none that cannot be that of a host on a network.
func Addresses(ctx context.Context, connect string) (all []netip.AddrPort, err error) {
	host, service, err := net.SplitHostPort(connect)
	if err != nil {
		return nil, fmt.Errorf("to.order.connect: %w", err)
	}
	port, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("to.order.connect: %w", err)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(ip, uint16(port))}, nil
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("look up the exchange's name: %w (correct to.order.connect or to.order.peer, or add the name to DNS or /etc/hosts)", err)
	}
	for _, ip := range found {
		if ip = ip.Unmap(); config.CanConnect(ip) && len(all) < maxAddresses {
			all = append(all, netip.AddrPortFrom(ip, uint16(port)))
		}
	}
	if all == nil {
		return nil, fmt.Errorf("the exchange's name %s stands for %v, which is no host on a network (correct to.order.connect or to.order.peer, DNS or /etc/hosts)", host, found)
	}
	return all, nil
}
