//go:build !invariants

package worker

import "time"

// MaxWait is the longest wait for an event. Each flow says with its descriptors and its deadline when it must be polled;
// MaxWait bounds what a mistake in that costs.
const MaxWait = time.Second
