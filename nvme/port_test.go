package nvme

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/umem/porttest"
)

// TestPort runs the contract of umem.Port on every kind of target.
func TestPort(t *testing.T) {
	for _, c := range []struct {
		name   string
		target func(t testing.TB, size uint64) TargetConfig
	}{
		{"file", fileTarget},
		{"zram", zramTarget},
		{"loop", loopTarget},
	} {
		t.Run(c.name, func(t *testing.T) {
			porttest.Run(t, func(t testing.TB) *porttest.Link { return openLink(t, c.target, Config{}) })
		})
	}
}

func fileTarget(t testing.TB, size uint64) TargetConfig {
	return TargetConfig{Path: testenv.DiskDir(t) + "/target", Create: true, Size: size, Prepare: PrepareZero}
}

func zramTarget(t testing.TB, size uint64) TargetConfig {
	return TargetConfig{Path: testenv.Zram(t, size), Size: size}
}

func loopTarget(t testing.TB, size uint64) TargetConfig {
	return TargetConfig{Path: testenv.Loop(t, testenv.DiskFile(t, size), 0), Size: size}
}

// openLink is a queue that both sends and receives. Messages have up to four
// frames and a place each on the target.
func openLink(t testing.TB, target func(testing.TB, uint64) TargetConfig, c Config) *porttest.Link {
	const place = 16 << 10
	config := target(t, porttest.Slots*place)
	r := newRig(t, umem.Config{Control: 2 << 20}, c)
	dest := r.open(config)
	index := r.add(dest)
	l := &porttest.Link{
		Worker: r.hands, Sender: r.queue, Receiver: r.queue, Stored: true,
		Unit: int(dest.Alignment().Offset), Min: int(dest.Alignment().Offset), Max: place,
		Prepare: func(slot, offset int, f *umem.Frame) {
			s := r.region.Side(*f)
			s.Target, s.Block = index, uint64(slot*place+offset)
		},
		Spoil: func(f *umem.Frame) { r.region.Side(*f).Block |= 1 },
	}
	l.Reopen = func(t testing.TB) {
		r.reopen(c)
		index = r.add(dest)
		l.Sender, l.Receiver = r.queue, r.queue
	}
	return l
}

// reopen replaces a closed queue.
func (r *rig) reopen(c Config) {
	r.Helper()
	c.Worker = r.hands
	q, err := Open(c)
	if err != nil {
		r.Fatal(err)
	}
	r.queue = q
}
