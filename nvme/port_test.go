package nvme

import (
	"testing"

	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/umem"
	"github.com/unifiedd/unifiedd/umem/porttest"
)

// TestPort: a queue keeps the contract of umem.Port on every kind of target, without the features that older kernels lack,
// and with other kinds of rings.
func TestPort(t *testing.T) {
	run := func(name string, target func(testing.TB, uint64) TargetConfig, c Config) {
		t.Run(name, func(t *testing.T) {
			if name != "file" && name != "6.5, wide entries" {
				testenv.Long(t, "the file and the rings that differ most stand for the others")
			}
			porttest.Run(t, func(t testing.TB) *porttest.Link { return openLink(t, target, c) })
		})
	}
	for _, k := range kinds {
		run(k.name, k.config, Config{})
	}
	for _, v := range versions {
		run(v.name, fileTarget, Config{}.Without(v.without))
	}
	run("wide entries", fileTarget, Config{Passthrough: true})
	run("6.5, wide entries", fileTarget, Config{Passthrough: true}.Without(FeatureNoMmap|FeatureNoSQArray))
}

// versions are the features that kernels before each version lack.
var versions = []struct {
	name    string
	without feature
}{
	{"6.15", FeatureGatherFixed},
	{"6.6", FeatureGatherFixed | FeatureNoSQArray},
	{"6.5", FeatureGatherFixed | FeatureNoSQArray | FeatureNoMmap},
	{"6.1", FeatureGatherFixed | FeatureNoSQArray | FeatureNoMmap | FeatureDefer},
	{"6.1 and a device's memory", FeatureGatherFixed | FeatureNoSQArray | FeatureNoMmap | FeatureDeviceMemory},
	{"a device's memory", FeatureDeviceMemory},
}

// openLink returns a queue as both ends of a link. Messages have up to five frames, and each has
// its own place on the target.
func openLink(t testing.TB, target func(testing.TB, uint64) TargetConfig, c Config) *porttest.Link {
	const place = 16 << 10
	r := newRig(t, umem.Config{}, c)
	dest, index := r.open(target(t, porttest.Slots*place))
	l := &porttest.Link{
		Worker: r.hands, Sender: r.queue, Receiver: r.queue, Stored: true,
		Unit: int(dest.Alignment().Offset), Min: int(dest.Alignment().Offset), Max: place,
		Spoil: func(f *umem.Frame) { r.region.Side(*f).Block |= 1 },
	}
	// The suite owns a frame's token, and this test the rest of its side entry.
	l.Prepare = func(slot, offset int, f *umem.Frame) {
		s := r.region.Side(*f)
		s.Target, s.Block = index, uint64(slot*place+offset)
	}
	l.Reopen = func(t testing.TB) {
		r.reopen(c)
		index = r.add(dest)
		l.Sender, l.Receiver = r.queue, r.queue
	}
	return l
}
