package nvme

import "time"

// Features that tests can switch off.
const (
	FeatureNoMmap       = featureNoMmap
	FeatureNoSQArray    = featureNoSQArray
	FeatureDefer        = featureDefer
	FeatureGatherFixed  = featureGatherFixed
	FeatureDeviceMemory = featureDeviceMemory
)

// Without returns the configuration of a queue that does not use features.
func (c Config) Without(f feature) Config {
	c.without |= f
	return c
}

// SetPatience changes how long Close waits for operations in flight.
func (q *Queue) SetPatience(d time.Duration) { q.closeTimeout = d }
