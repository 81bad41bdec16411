package netdev

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Times of an address that is tentative. Duplicate address detection takes a second or two by default (dad_transmits and
// retrans_time_ms).
const (
	tentativeWait = 10 * time.Second
	tentativePoll = 20 * time.Millisecond
)

// Listen is net.ListenConfig.Listen for TCP, and waits while the address is tentative, as one is that was just added.
func Listen(ctx context.Context, c *net.ListenConfig, address string) (net.Listener, error) {
	for begun := time.Now(); ; {
		l, err := c.Listen(ctx, "tcp", address)
		if !errors.Is(err, unix.EADDRNOTAVAIL) || !tentative(address) {
			return l, err
		}
		if time.Since(begun) > tentativeWait {
			return nil, fmt.Errorf("%w: the address is still tentative after %v (see: ip -6 addr show tentative)", err, tentativeWait)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(tentativePoll):
		}
	}
}

// tentative reports whether the host has an address and does not use it yet. One that another host has as well stays
// unused.
func tentative(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	want, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	all, err := netlink.AddrList(nil, netlink.FAMILY_V6)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return false
	}
	for _, a := range all {
		if has, ok := netip.AddrFromSlice(a.IP); ok && has == want.WithZone("") && a.Flags&unix.IFA_F_TENTATIVE != 0 && a.Flags&unix.IFA_F_DADFAILED == 0 {
			return true
		}
	}
	return false
}
