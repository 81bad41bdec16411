package xdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/unifiedd/unifiedd/umem"
)

// SendRoom is how many bytes in front of each sent packet are the kernel's if Granted.SendTimes is set. They must be in
// the packet's frame. It is the size of struct xsk_tx_metadata (include/uapi/linux/if_xdp.h): flags, and a union of what is
// asked for and of the time at which the packet left.
const SendRoom = 24

// sendStamp is where the time is.
const sendStamp = 8

// registerTimed registers the region so that sent packets get times. It reports false on a kernel that does not know
// that. The flag is of Linux 6.11; earlier ones have neither, or register a length that they may not look at.
func registerTimed(fd int, memory []byte, chunk, headroom uint32) (bool, error) {
	err := registerUMEM(fd, memory, chunk, headroom, unix.XDP_UMEM_TX_METADATA_LEN, SendRoom)
	if errors.Is(err, unix.EINVAL) {
		return false, nil
	}
	return err == nil, err
}

// noSendTimes returns why packets that leave with zero copy have no times; nil: they have those of the card's clock.
func noSendTimes(ifindex int) error {
	v := netdevAttribute(ifindex, netdevXSKFeatures)
	if len(v) != 8 || binary.NativeEndian.Uint64(v)&featureTxTimestamp == 0 {
		return fmt.Errorf("the driver gives no times of packets that it sends with zero copy: %w", unix.EOPNOTSUPP)
	}
	return nil
}

// timed says in g whether packets that are sent through the sockets get times, and whose.
func (i *Interface) timed(g *Granted, first *socket) {
	switch {
	case !i.config.SendTimes:
	case !first.timed:
		g.NoSendTimes = &UnsupportedError{"times of sent packets", "Linux 6.11", unix.EINVAL}
	case g.ZeroCopy:
		g.NoSendTimes = noSendTimes(i.device.index)
		g.SendTimes, g.SendClock = g.NoSendTimes == nil, umem.CardClock
	default:
		g.SendTimes = true
	}
}

// ask prepares the room in front of a packet for its time, and returns the option that its descriptor needs.
func (p *Port) ask(f umem.Frame) (option uint32) {
	if !p.times.on {
		return 0
	}
	b := p.region.At(f.Addr-SendRoom, SendRoom)
	binary.NativeEndian.PutUint64(b, unix.XDP_TXMD_FLAGS_TIMESTAMP)
	binary.NativeEndian.PutUint64(b[sendStamp:], 0)
	return unix.XDP_TX_METADATA
}

// SentAt returns when a packet left that Reap has just returned, in nanoseconds of Granted.SendClock: by the system's
// clock when the kernel was done with the packet, or by the card's when it was on the wire. It reports false if there is
// no time, as for a packet that the device dropped. The frame must not have been written to since Reap.
func (p *Port) SentAt(f umem.Frame) (at uint64, ok bool) {
	if !p.times.on || f.Addr&(p.chunk-1) < SendRoom {
		return 0, false
	}
	at = binary.NativeEndian.Uint64(p.region.At(f.Addr-SendRoom+sendStamp, 8))
	if at == 0 {
		return 0, false
	}
	if !p.zeroCopy { // the kernel reads CLOCK_TAI: xsk_destruct_skb in net/xdp/xsk.c
		at -= p.times.ahead()
	}
	return at, true
}

// sendTimes is what a port needs to know about the times of packets that it sends.
type sendTimes struct {
	on   bool
	tai  uint64    // nanoseconds by which CLOCK_TAI is ahead of the system's clock
	seen time.Time // when that was read
}

// taiAge is how old tai may become: a daemon that keeps the time may set it after the start.
const taiAge = 100 * time.Millisecond

// ahead returns by how much CLOCK_TAI is ahead of the system's clock: whole seconds.
func (t *sendTimes) ahead() uint64 {
	if t.seen.IsZero() || time.Since(t.seen) > taiAge {
		const second = uint64(time.Second)
		t.seen = time.Now()
		t.tai = (now(unix.CLOCK_TAI) - now(unix.CLOCK_REALTIME) + second/2) / second * second
	}
	return t.tai
}
