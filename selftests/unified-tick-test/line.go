package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"golang.org/x/sys/unix"
)

// line is a line on which ticks leave.
type line struct {
	to      netip.AddrPort
	fd      int
	random  *rand.Rand // decides which ticks the line leaves out
	loss    float64
	packets uint64
	bytes   uint64
	dropped uint64

	numbers []uint32 // of the ticks in the packets that were sent, for their stamps; 0: none
	stamped int      // packets whose stamps have come
	kernel  bool     // the kernel stamps
}

func openLine(to netip.AddrPort, number int, o *options) (l *line, err error) {
	l = &line{to: to, loss: o.loss / 100, random: rand.New(rand.NewPCG(o.seed, uint64(number))), kernel: o.stamps == kernel}
	if l.fd, err = dialTicks(to, o.iface); err != nil {
		return nil, err
	}
	if l.kernel {
		l.numbers = make([]uint32, 0, o.warm+o.count+100) // no allocation while times are measured
		stamp := stampSent
		if o.echo {
			stamp = stampBoth
		}
		if err := stamp(l.fd); err != nil {
			return nil, errors.Join(fmt.Errorf("have the kernel stamp ticks: %w (-stamps own does without)", err), unix.Close(l.fd))
		}
	}
	return l, nil
}

// drops decides whether the line leaves out the next tick.
func (l *line) drops() bool {
	if l.loss == 0 || l.random.Float64() >= l.loss {
		return false
	}
	l.dropped++
	return true
}

// send sends a packet. tick is its number, or 0.
func (l *line) send(packet []byte, tick uint64) error {
	for {
		_, errno := write(l.fd, packet)
		switch {
		case errno == 0:
			l.packets++
			l.bytes += uint64(len(packet))
			if l.kernel {
				l.numbers = append(l.numbers, uint32(tick))
			}
			return nil
		case errno == unix.ECONNREFUSED:
			return fmt.Errorf("send ticks to %s: nobody receives there: %w", l.to, errno)
		case errno != unix.EINTR:
			return fmt.Errorf("send ticks to %s: %w", l.to, errno)
		}
	}
}

// mostWaiting is how many stamps may wait in the kernel, which drops those for which it has no room.
const mostWaiting = 64

// relieve takes stamps if many wait.
func (l *line) relieve(f func(tick uint32, at int64)) {
	if len(l.numbers)-l.stamped > mostWaiting {
		l.stamps(mostWaiting, f)
	}
}

// stamps calls f for the stamps that have come, at most so many.
func (l *line) stamps(most int, f func(tick uint32, at int64)) {
	for ; most > 0 && l.stamped < len(l.numbers); most-- {
		id, at, ok := nextSent(l.fd)
		if !ok {
			return
		}
		if l.stamped++; uint64(id) < uint64(len(l.numbers)) {
			if tick := l.numbers[id]; tick > 0 {
				f(tick, at)
			}
		}
	}
}
