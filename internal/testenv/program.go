package testenv

import (
	"testing"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// AwaitNoProgram waits until the XDP program of a process that has ended is gone. The kernel
// detaches it some time later, and veth then drops the packets in flight.
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
		Must(t, err)
		has = link.Attrs().Xdp != nil && link.Attrs().Xdp.Attached
	})
	return has
}

// DetachProgram detaches a program from its interface, as bpftool link detach does.
func DetachProgram(t testing.TB, program uint32) {
	t.Helper()
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err != nil || uint32(info.Program) != program {
			continue
		}
		Must(t, it.Link.Detach())
		return
	}
	t.Fatalf("no link holds program %d", program)
}

// Opened opens a resource. The end of the test closes it.
func Opened[T interface{ Close() error }](t testing.TB, open func() (T, error)) T {
	t.Helper()
	thing, err := open()
	Must(t, err)
	t.Cleanup(func() {
		Check(t, thing.Close())
	})
	return thing
}
