package tcpsend

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// clock tells the time as the kernel puts it into the timestamps of one connection: CLOCK_MONOTONIC in milliseconds,
// and an offset.
type clock struct {
	base   time.Time
	nanos  int64 // CLOCK_MONOTONIC at base, or a moment before
	offset uint32
}

// at returns the timestamp of a segment that is made at a time, which was read just before. It is never later than the
// kernel's: a segment of the kernel that follows must not seem to be an old one (RFC 7323, 5.3).
func (c *clock) at(t time.Time) uint32 {
	return uint32((c.nanos+int64(t.Sub(c.base)))/int64(time.Millisecond)) + c.offset
}

// millis reads CLOCK_MONOTONIC.
func millis() (uint32, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0, err
	}
	return uint32(t.Nano() / int64(time.Millisecond)), nil
}

// set finds the offset of a connection. The kernel clears the lowest bit of what it answers (TCP_TIMESTAMP in
// do_tcp_getsockopt, Linux 6.7). So the offset is the largest difference seen, if it was seen at an even and at an odd
// time.
func (c *clock) set(fd int) error {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return err
	}
	c.base, c.nanos = time.Now(), t.Nano()
	var seen [2]bool
	for range 200 {
		before, err := millis()
		if err != nil {
			return err
		}
		var stamp uint32
		if errno := get(fd, tcpTimestamp, &stamp); errno != 0 {
			return errno
		}
		after, err := millis()
		if err != nil {
			return err
		}
		if before == after {
			if d := stamp - before; !seen[0] && !seen[1] || int32(d-c.offset) > 0 {
				c.offset = d
			}
			seen[before&1] = true
		}
		if seen[0] && seen[1] {
			return nil
		}
		time.Sleep(300 * time.Microsecond)
	}
	return errors.New("the clock of the connection's timestamps cannot be read")
}
