package interop

import (
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/testenv/setting"
)

// TestSoftRoCE has programs in both roles, and in the long form unified-rdma-test itself on Soft-RoCE as well, with
// all it does.
func TestSoftRoCE(t *testing.T) {
	b := newBench(t, setting.Number(t, "UNIFIEDD_LONG", 0) > 0)
	t.Run("wire", b.wire)
	if !b.long {
		b.programs(t, few)
		t.Run("nvme", b.nvme)
		t.Run("keys", b.keys)
		return
	}
	t.Run("nvme", b.nvme)
	t.Run("keys", b.keys)
	b.managed(t, managedPrograms)
	b.programs(t, programs)
	t.Run("guest_asks", b.guestAsks)
	t.Run("guest_serves", b.guestServes)
}

// programs has each program as client of ours and as server for ours, in the short form one after the other as one of both. Its
// kind listens on IPv4 alone.
func (b *bench) programs(t *testing.T, all []program) {
	for i, p := range all {
		if b.long || i%2 == 0 {
			t.Run("client_"+p.String(), func(t *testing.T) { b.counted(t, p, func() { p.asClient(t, b) }) })
		}
		if !p.ipv6 && (b.long || i%2 == 1) {
			t.Run("server_"+p.String(), func(t *testing.T) { b.counted(t, p, func() { p.asServer(t, b) }) })
		}
	}
}

// counted holds the device's counters against what they were before f.
func (b *bench) counted(t *testing.T, p program, f func()) {
	t.Helper()
	before, begin := b.counters(t), time.Now()
	f()
	all, wrong := b.counters(t).since(before, b.except(p)...)
	t.Logf("%v; %s counted %s", time.Since(begin).Round(10*time.Millisecond), device, strings.Join(all, ", "))
	if len(wrong) > 0 {
		t.Errorf("where nothing is lost, %s counted %s", device, strings.Join(wrong, ", "))
	}
}
