package transport

import "time"

// Time is that of the caller's clock, which must not go back: nanoseconds since anything.
type Time int64

// never is no time to wait for.
const never Time = 0

// After is the time d later.
func (t Time) After(d time.Duration) Time { return t + Time(d) }
