package nvme

import "time"

// Features a test can do without.
const (
	FeatureNoMmap      = featureNoMmap
	FeatureNoSQArray   = featureNoSQArray
	FeatureDefer       = featureDefer
	FeatureGatherFixed = featureGatherFixed
)

// Without is the config for a queue that does without features.
func (c Config) Without(f feature) Config {
	c.without |= f
	return c
}

// SetPatience changes how long Close waits for operations in flight.
func (q *Queue) SetPatience(d time.Duration) { q.closeTimeout = d }
