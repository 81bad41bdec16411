package testenv

import (
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// AwaitNoProgram waits until the XDP program of a process that has ended is gone: the kernel takes it off a while
// later, and veth then drops the packets that are under way.
func (e *End) AwaitNoProgram(t testing.TB) {
	t.Helper()
	Wait(t, 10*time.Second, e.Ifname+" to be without an XDP program", func() bool {
		return !e.HasProgram(t)
	})
}

// HasProgram reports whether the end has an XDP program.
func (e *End) HasProgram(t testing.TB) (has bool) {
	t.Helper()
	e.Do(t, func() {
		link, err := netlink.LinkByName(e.Ifname)
		if err != nil {
			t.Fatal(err)
		}
		has = link.Attrs().Xdp != nil && link.Attrs().Xdp.Attached
	})
	return has
}
