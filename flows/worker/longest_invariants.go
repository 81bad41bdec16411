//go:build invariants

package worker

import "time"

// MaxWait is so long in tests that a flow which does not say when it must be polled stands still.
const MaxWait = time.Hour
