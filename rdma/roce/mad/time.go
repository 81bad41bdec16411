package mad

import "time"

// Duration is what a number of 5 bits stands for: 4.096 µs << it.
func Duration(code uint8) time.Duration { return 4096 * time.Nanosecond << (code & 31) }

// maxCode is the greatest such number.
const maxCode = 31

// AckTimeout is how long an acknowledgement is to be waited for, as a number: twice the lifetime of a packet and the delay of the card that
// acknowledges. The sum is rounded to powers of two as the kernel does (cm_ack_timeout in drivers/infiniband/core/cm.c).
func AckTimeout(delay, lifetime uint8) uint8 {
	twice := lifetime + 1
	sum := max(twice, delay)
	if max(twice, delay)-min(twice, delay) <= 1 {
		sum++
	}
	return min(sum, maxCode)
}
