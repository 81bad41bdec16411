package mad

import "time"

// Duration returns the time that a code of 5 bits stands for: 4.096 µs << code.
func Duration(code uint8) time.Duration { return 4096 * time.Nanosecond << (code & 31) }

// maxCode is the largest code.
const maxCode = 31

// AckTimeout returns the code of the time to wait for an acknowledgement: twice the lifetime of a
// packet plus the delay of the card that acknowledges. It rounds the sum to powers of two as the
// kernel does (cm_ack_timeout in drivers/infiniband/core/cm.c).
func AckTimeout(delay, lifetime uint8) uint8 {
	twice := lifetime + 1
	sum := max(twice, delay)
	if max(twice, delay)-min(twice, delay) <= 1 {
		sum++
	}
	return min(sum, maxCode)
}
