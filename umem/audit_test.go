package umem

import "testing"

// TestAuditFindsBrokenRecords: Audit reports each way in which the records can be wrong.
func TestAuditFindsBrokenRecords(t *testing.T) {
	for _, c := range []struct {
		name  string
		crush func(r *Region, worker, device *Holder)
		want  []string
	}{
		{"frame changed hands unnoticed", func(r *Region, worker, device *Holder) { r.records[0] = device.id },
			[]string{"book worker counts 4 frames, the records say 3", "book xdp counts 0 frames, the records say 1"}},
		{"frame leaked by its holder", func(r *Region, worker, device *Holder) { r.records[0] = poolID },
			[]string{"the pool has 252 frames, the records say 253", "book worker counts 4"}},
		{"frame in the pool twice", func(r *Region, worker, device *Holder) { r.pool.frames[0] = r.pool.frames[1] },
			[]string{"is in the pool twice"}},
		{"frame in the pool and with a holder", func(r *Region, worker, device *Holder) { r.pool.frames[0] = 0 },
			[]string{"frame at 0x0 is in the pool twice, or in the pool and with a holder"}},
		{"frame missing from the pool", func(r *Region, worker, device *Holder) { r.pool.frames = r.pool.frames[1:] },
			[]string{"the pool has 251 frames, the records say 252"}},
		{"wrong count", func(r *Region, worker, device *Holder) { device.held = -1 },
			[]string{"book xdp counts -1 frames, the records say 0"}},
		{"holder that never was", func(r *Region, worker, device *Holder) { r.records[3] = 999 },
			[]string{"frame at 0x3000 belongs to a closed holder", "holders have 255 frames, the region 256"}},
		{"holder that is gone", func(r *Region, worker, device *Holder) { r.holders[worker.id] = nil },
			[]string{"frame at 0x0 belongs to a closed holder"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _, worker, device := worldOf(t, Config{Size: 1 << 20})
			take(t, worker, 4)
			audit(t, r)
			c.crush(r, worker, device)
			_, err := r.Audit()
			wantError(t, err, c.want...)
		})
	}
}
