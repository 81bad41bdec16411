package capfile

import (
	"math"
	"math/bits"
)

// clock describes an interface of a pcapng section: its link type, its snap length, and how to convert its
// times.
type clock struct {
	link    uint32
	snaplen uint32
	binary  bool
	power   uint8 // a second has 10^power units; if binary, 2^power
	offset  int64 // seconds to add to each time
}

// describe reads an Interface Description Block. Times are in microseconds unless an option changes that.
func (p *Parser) describe(b []byte) error {
	if len(p.interfaces) == maxInterfaces {
		return p.bad(errInterfaces)
	}
	p.interfaces = append(p.interfaces, clock{link: uint32(p.u16(b)), snaplen: p.u32(b[4:]), power: 6})
	p.options(p.start + 16)
	return nil
}

// options continues with an interface's next option, or with what follows the options.
func (p *Parser) options(at int64) {
	if p.end-4-at < 4 {
		p.close()
		return
	}
	p.want(atOption, at, 4)
}

// option reads an option's header, and asks for its value if the parser uses that.
func (p *Parser) option(b []byte) error {
	code, n := p.u16(b), int64(p.u16(b[2:]))
	value := p.place + 4
	if behind := value + (n+3)&^3; behind > p.end-4 {
		return p.bad(errOption)
	}
	switch {
	case code == optionEnd:
		p.close()
	case code == optionResolution && n == 1:
		p.want(atResolution, value, 1)
	case code == optionOffset && n == 8:
		p.want(atOffset, value, 8)
	case code == optionResolution, code == optionOffset:
		return p.bad(errOption)
	default:
		p.options(value + (n+3)&^3)
	}
	return nil
}

// last is the interface whose description is being read.
func (p *Parser) last() *clock { return &p.interfaces[len(p.interfaces)-1] }

// The finest resolutions that 64-bit division can convert, in powers beyond nanoseconds.
const maxPower10, maxPower2 = 9 + 19, 63

func (p *Parser) resolution(v byte) error {
	c := p.last()
	c.binary, c.power = v&0x80 != 0, v&0x7f
	if c.binary && c.power > maxPower2 || !c.binary && c.power > maxPower10 {
		return p.bad(errResolution)
	}
	p.options(p.place + 4)
	return nil
}

func (p *Parser) offset(seconds int64) error {
	p.last().offset = seconds
	p.options(p.place + 8)
	return nil
}

// time converts a number of units to nanoseconds since 1970. A time out of range becomes the earliest or
// latest possible one.
func (c *clock) time(units uint64) uint64 {
	ns := c.nanoseconds(units)
	if c.offset == 0 {
		return ns
	}
	high, by := bits.Mul64(magnitude(c.offset), 1e9)
	switch {
	case c.offset < 0 && (high > 0 || by > ns):
		return 0
	case c.offset < 0:
		return ns - by
	case high > 0 || by > math.MaxUint64-ns:
		return math.MaxUint64
	}
	return ns + by
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

func (c *clock) nanoseconds(units uint64) uint64 {
	if c.binary {
		seconds, rest := units>>c.power, units&(1<<c.power-1)
		high, low := bits.Mul64(rest, 1e9)
		below := low
		if c.power > 0 {
			below = high<<(64-c.power) | low>>c.power
		}
		return saturated(seconds, 1e9, below)
	}
	if c.power > 9 {
		return units / ten(c.power-9)
	}
	return saturated(units, ten(9-c.power), 0)
}

// saturated returns n*by+more, or the largest number if that overflows.
func saturated(n, by, more uint64) uint64 {
	high, low := bits.Mul64(n, by)
	if high > 0 || low > math.MaxUint64-more {
		return math.MaxUint64
	}
	return low + more
}

// ten is 10 to the power of n, up to 19.
func ten(n uint8) uint64 {
	v := uint64(1)
	for range n {
		v *= 10
	}
	return v
}
