//go:build !amd64

package measure

import "time"

var epoch = time.Now()

// counter reads the system's clock where the processor's counter is not available.
func counter() uint64 { return uint64(time.Since(epoch)) }
