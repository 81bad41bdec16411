//go:build !amd64

package measure

import "time"

var epoch = time.Now()

// counter is the system's clock where the processor's is not to be had.
func counter() uint64 { return uint64(time.Since(epoch)) }
