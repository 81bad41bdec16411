package xdp

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/bpf"
)

// Granted is what the kernel gave an interface's sockets.
type Granted struct {
	ZeroCopy    bool      // the device writes frames itself; XDP_OPTIONS after the bind
	MultiBuffer bool      // packets may fill several frames
	Mode        bpf.Mode  // where the program runs; bpf.Any without one
	Dispatched  bool      // it runs in libxdp's dispatcher, beside programs of others
	NeedWakeup  bool      // the kernel says when it wants a wake-up
	MaxPacket   uint32    // bytes of the longest packet the sockets take; 0: no limit
	Refused     []Refusal // better ways that were tried first
	// CardClock: packets have times of the card's own clock, those that it has one for.
	// PTPClock is the number of that clock (/dev/ptpN), -1 where the driver names none.
	CardClock   bool
	PTPClock    int
	NoCardClock error // why not, where it was preferred
	NoArrival   error // why times are those at which packets are taken from the rings; nil: they are those of arrival, as far as is known
	// TagsStripped: the card takes VLAN tags out of packets and could not be told not to.
	TagsStripped bool
}

// WhyNotZeroCopy says in words why the kernel copies; empty with zero copy, and
// where that was not tried.
func (g Granted) WhyNotZeroCopy() string {
	if g.ZeroCopy {
		return ""
	}
	return describe(slices.DeleteFunc(slices.Clone(g.Refused), func(r Refusal) bool { return !r.ZeroCopy }))
}

// Refusal is one way of binding that was tried, and why it was refused.
type Refusal struct {
	ZeroCopy    bool
	MultiBuffer bool
	Err         error
}

func (r Refusal) String() string {
	return fmt.Sprintf("%s: %v", attempt{r.ZeroCopy, r.MultiBuffer}, r.Err)
}

func describe(rs []Refusal) string {
	parts := make([]string, len(rs))
	for i, r := range rs {
		parts[i] = r.String()
	}
	return strings.Join(parts, "; ")
}

// attempt is one way of binding.
type attempt struct{ zeroCopy, multiBuffer bool }

func (a attempt) String() string {
	name := "copy"
	if a.zeroCopy {
		name = "zero copy"
	}
	if a.multiBuffer {
		name += " with multi-buffer"
	}
	return name
}

// flags are the bind flags of the attempt.
func (a attempt) flags(needWakeup bool) uint16 {
	f := uint16(unix.XDP_COPY)
	if a.zeroCopy {
		f = unix.XDP_ZEROCOPY
	}
	if a.multiBuffer {
		f |= unix.XDP_USE_SG
	}
	if needWakeup {
		f |= unix.XDP_USE_NEED_WAKEUP
	}
	return f
}

// attempts are the ways of binding to try, best first. Drivers refuse zero copy
// and multi-buffer together that grant zero copy alone, and asking for whatever
// works gives copy mode without a word: so each is asked for by name.
func (c *Config) attempts(d *device) []attempt {
	var out []attempt
	if c.Policy != Copy && c.Mode != bpf.Generic {
		out = c.zeroCopies(d)
	}
	if c.Policy != Require {
		if c.Shape.MultiBuffer {
			out = append(out, attempt{multiBuffer: true})
		}
		out = append(out, attempt{})
	}
	return out
}

// zeroCopies are those with zero copy. Who gathers wants multi-buffer where the driver says it has it, others where a packet may be longer than a frame.
func (c *Config) zeroCopies(d *device) []attempt {
	one, many := attempt{zeroCopy: true}, attempt{zeroCopy: true, multiBuffer: true}
	switch fits := d.mtu <= c.frameMTU(); {
	case !c.Shape.MultiBuffer:
		return []attempt{one}
	case !fits:
		return []attempt{many}
	case c.Gather && d.zcSegments > 1:
		return []attempt{many, one}
	}
	return []attempt{one, many}
}

// frameRoom is how many bytes of a packet one frame surely takes. Newer kernels
// round it down to 128 (xsk_pool_get_rx_frame_size in include/net/xdp_sock_drv.h), so
// a packet above is not let through to be dropped there.
func (c *Config) frameRoom() uint32 { return c.Shape.Capacity(c.region().FrameSize()) &^ 127 }

// frameMTU is the largest MTU whose packets surely fit a frame.
func (c *Config) frameMTU() int { return int(c.frameRoom()) - linkOverhead }

// linkOverhead is what an Ethernet frame has beyond the MTU: addresses, type and
// two VLAN tags, without the checksum that never reaches memory.
const linkOverhead = 14 + 2*4
