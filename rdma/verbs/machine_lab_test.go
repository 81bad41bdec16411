//go:build verbs && cgo

package verbs

import (
	"slices"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
)

// examined: Examine describes the machine correctly.
func examined(b *bench) {
	m, err := Examine()
	if err != nil || m.Library != nil || len(m.Devices) != 1 {
		b.t.Fatalf("%+v, %v", m, err)
	}
	for _, module := range m.Modules {
		if !module.Loaded {
			b.t.Errorf("%s is not loaded", module.Name)
		}
	}
	d := m.Devices[0]
	if d.Name != b.dev.Name() || d.Err != nil || d.Capabilities != b.dev.Capabilities() || len(d.Ports) != 1 {
		b.t.Fatalf("%+v", d)
	}
	p := d.Ports[0]
	if !p.Active || p.Interface != card || p.InterfaceMTU != 1500 || p.ActiveMTU != rdma.MTU1024 || len(p.GIDs) < 2 || len(p.Advice) != 1 {
		b.t.Errorf("%+v", p)
	}
	kernel := kernelPort(d.Name, 1)
	if !kernel.Active || kernel.State != p.State || kernel.LinkLayer != p.LinkLayer {
		b.t.Errorf("the kernel says %+v", kernel)
	}
}

// counted: the kernel counts sent packets, though it may update the counter late.
func counted(b *bench) {
	x, y := b.pair(config(rdma.RC))
	before := counter(b.t, b.dev.Name(), "sent_pkts")
	x.sendTo(y, 0)
	testenv.Wait(b.t, time.Second, "the packets of a message and its acknowledgement", func() bool {
		return counter(b.t, b.dev.Name(), "sent_pkts") >= before+2
	})
}

func counter(t *testing.T, device, name string) uint64 {
	t.Helper()
	all, err := ReadCounters(device, 1)
	i := slices.IndexFunc(all, func(c Counter) bool { return c.Name == name })
	if err != nil || i < 0 {
		t.Fatalf("no %s among %v, %v", name, all, err)
	}
	return all[i].Value
}
