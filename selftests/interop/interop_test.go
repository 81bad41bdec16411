package interop

import (
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/internal/testenv/setting"
)

// TestSoftRoCE: the programs of rdma-core work against ours as client and as server.
// The long form also runs every operation against unified-rdma-test on Soft-RoCE.
func TestSoftRoCE(t *testing.T) {
	testenv.Long(t, "it boots a guest")
	b := newBench(t, setting.Number(t, "UNIFIEDD_LONG", 0) > 0)
	t.Run("wire", b.wire)
	t.Run("classes", b.classes)
	if !b.long {
		b.programs(t, few)
		t.Run("nvme", b.nvme)
		t.Run("keys", b.keys)
		return
	}
	t.Run("nvme", b.nvme)
	t.Run("keys", b.keys)
	t.Run("rping", b.rping)
	b.programs(t, programs)
	t.Run("guest_asks", b.guestAsks)
	t.Run("guest_serves", b.guestServes)
}

// programs runs each program as client of ours and as server for ours. The short form alternates
// between the two roles. unified-rdma-test listens for these programs on IPv4 only.
func (b *bench) programs(t *testing.T, all []program) {
	for i, p := range all {
		if b.long || i%2 == 0 {
			t.Run("client_"+p.String(), func(t *testing.T) { b.counted(t, func() { p.asClient(t, b) }) })
		}
		if !p.ipv6 && (b.long || i%2 == 1) {
			t.Run("server_"+p.String(), func(t *testing.T) { b.counted(t, func() { p.asServer(t, b) }) })
		}
	}
}

// counted checks how f changed the counters of the device.
func (b *bench) counted(t *testing.T, f func()) {
	t.Helper()
	before, begin := b.counters(t), time.Now()
	f()
	all, wrong := b.counters(t).since(before, b.except()...)
	t.Logf("%v; %s counted %s", time.Since(begin).Round(10*time.Millisecond), device, strings.Join(all, ", "))
	if len(wrong) > 0 {
		t.Errorf("where nothing is lost, %s counted %s", device, strings.Join(wrong, ", "))
	}
}
