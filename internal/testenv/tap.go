package testenv

import (
	"errors"
	"net/netip"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Tap is a tap interface in its own namespace. It is up.
type Tap struct {
	End
	// File reads and writes the interface's packets, one a call, without a header in front. It
	// belongs to the test; an emulator may inherit it.
	File *os.File
	// PeerIP and PeerIP6 are the addresses for the program at the other end.
	PeerIP, PeerIP6 netip.Addr
}

// tapQueue is how many packets may wait for the other end. The interface drops further packets. The
// program at the other end may be slow.
const tapQueue = 8192

// NewTap makes a tap interface with one queue, and with the MTU and addresses of one end of a pair.
// All packets carry checksums, in both directions. The end of the test removes everything.
func NewTap(t testing.TB, o PairOptions) *Tap {
	t.Helper()
	if o.MTU == 0 {
		o.MTU = 1500
	}
	tap := &Tap{End: newEnd(t, 'T', 1, o)}
	tap.PeerIP, tap.PeerIP6 = tap.IP.Next(), tap.IP6.Next()
	tap.Do(t, func() { tap.File = openTap(t, tap.Ifname) })
	t.Cleanup(func() { tap.File.Close() })
	link := tap.link(t)
	tap.Index = link.Attrs().Index
	h := tap.handle(t)
	Mustf(t, errors.Join(h.LinkSetHardwareAddr(link, tap.MAC), h.LinkSetMTU(link, o.MTU), h.LinkSetTxQLen(link, tapQueue)), "set up %s", tap.Ifname)
	tap.up(t, o)
	if o.IPv6 && !o.NoAddresses {
		tap.awaitIPv6(t)
	}
	return tap
}

// openTap makes a tap interface in the namespace of the calling thread. It disappears when its
// last descriptor is closed (Documentation/networking/tuntap.rst).
func openTap(t testing.TB, name string) *os.File {
	t.Helper()
	return openTunTap(t, name, unix.IFF_TAP)
}

func openTunTap(t testing.TB, name string, mode uint16) *os.File {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open /dev/net/tun: %v (load the module tun)", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(mode | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		_ = unix.Close(fd)
		t.Fatalf("make the interface %s: %v", name, err)
	}
	return os.NewFile(uintptr(fd), name)
}

// NewTun makes a tun interface in its own namespace. It is up. Its packets begin with the IP
// header; File is as a Tap's. The end of the test removes everything.
func NewTun(t testing.TB) *Tap {
	t.Helper()
	tun := &Tap{End: newEnd(t, 'N', 1, PairOptions{})}
	tun.PeerIP = tun.IP.Next()
	tun.Do(t, func() { tun.File = openTunTap(t, tun.Ifname, unix.IFF_TUN) })
	t.Cleanup(func() { tun.File.Close() })
	tun.Index = tun.link(t).Attrs().Index
	tun.Run(t, "ip", "addr", "add", tun.IP.String()+"/24", "dev", tun.Ifname)
	tun.Run(t, "ip", "link", "set", tun.Ifname, "up")
	return tun
}
