//go:build verbs && cgo

package nvmet

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/providers"
	"github.com/unifiedd/unifiedd/rdma/roce"
	"github.com/unifiedd/unifiedd/umem"
)

// byHand: a host whose commands the test makes works over the kernel's verbs. A write's data is in
// the region only once.
func (r *rig) byHand() {
	r.run("modprobe", "zram")
	s := newStation(r, func(s *rig, _ *umem.Region) (rdma.Device, cm.Manager) {
		device, err := providers.Open(r.endpoint.Device.Name(), roce.Config{})
		s.must(err)
		s.Cleanup(func() { s.check(device.Close()) })
		manager, err := cm.Open()
		s.must(err)
		s.Cleanup(func() { s.check(manager.Close()) })
		return device, manager
	})
	r.Run("where it landed", func(t *testing.T) { landed(r.with(t), s.with(t), 1) })
	r.Run("hangs", func(t *testing.T) {
		testenv.Long(t, "make lab runs it; on RoCE in software it runs always, with another kind of disk")
		on := r.with(t)
		m := labenv.Map(t, 16<<20)
		hung := false
		mend := func() {
			if hung {
				m.Mend(t)
				hung = false
			}
		}
		disk := &hanging{on.opened(m), func() { m.Hang(t); hung = true }, mend}
		on.Cleanup(mend)
		hangs(on, s.with(t), disk, on.zram(16<<20))
	})
	r.Run("hostile", func(t *testing.T) {
		testenv.Long(t, "make lab runs it; on RoCE in software it runs always")
		hostile(r.with(t), s.with(t))
	})
}
