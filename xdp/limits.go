package xdp

import "github.com/unifiedd/unifiedd/umem"

// limits are what a port takes.
func (c *Config) limits(g Granted, d *device) umem.Limits {
	l := umem.Limits{Frames: maxFrames(g, d)}
	l.Message = min(uint64(l.Frames)*uint64(c.chunk()), uint64(d.mtu)+sendOverhead)
	if c.Direction.receives() {
		l.Supply = int(c.FillSize)
		if c.reserve > 0 {
			l.Supply = int(c.reserve + margin)
		}
	}
	if c.Direction.sends() {
		l.Send = int(c.RingSize)
	}
	return l
}

// maxFrames is the most frames one packet is sent in. A longer chain the kernel
// would count and drop (xsk_build_skb in net/xdp/xsk.c, and with zero copy
// xskq_cons_read_desc_batch in xsk_queue.h).
func maxFrames(g Granted, d *device) int {
	switch {
	case !g.MultiBuffer:
		return 1
	case g.ZeroCopy:
		return max(1, min(int(d.zcSegments), maxFrags))
	}
	return maxFrags
}

// maxFrags is the least that CONFIG_MAX_SKB_FRAGS may be.
const maxFrags = 17

// sendOverhead is what an Ethernet frame may have beyond the MTU for devices to
// take it: the header and one VLAN tag (is_skb_forwardable in net/core/dev.c).
const sendOverhead = 14 + 4
