//go:build lab

package capture

import (
	"fmt"
	"os"
	"time"
)

// kernelMeter reads the kernel's idle time: proc_stat(5), in hundredths of a second.
type kernelMeter struct{ begun time.Time }

func (m kernelMeter) read() (r reading, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return r, err
	}
	var user, nice, system, idle, iowait int64
	if _, err := fmt.Sscanf(string(text), "cpu %d %d %d %d %d", &user, &nice, &system, &idle, &iowait); err != nil {
		return r, fmt.Errorf("/proc/stat: %w", err)
	}
	return reading{time.Since(m.begun), time.Duration(idle+iowait) * 10 * time.Millisecond}, nil
}
