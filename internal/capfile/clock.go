package capfile

import "math/bits"

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

func (p *Parser) resolution(v byte) error {
	c := p.last()
	c.binary, c.power = v&0x80 != 0, v&0x7f
	p.options(p.place + 4)
	return nil
}

func (p *Parser) offset(seconds int64) error {
	p.last().offset = seconds
	p.options(p.place + 8)
	return nil
}

// time converts a number of units to nanoseconds since 1970, rounded down. ok is false for a time before 1970, or after
// 2554, which 64 bits cannot hold.
func (c *clock) time(units uint64) (ns uint64, ok bool) {
	high, low := c.nanoseconds(units)
	byHigh, byLow := bits.Mul64(magnitude(c.offset), 1e9)
	var carry uint64
	if c.offset < 0 {
		low, carry = bits.Sub64(low, byLow, 0)
		high, carry = bits.Sub64(high, byHigh, carry)
	} else {
		low, carry = bits.Add64(low, byLow, 0)
		high, carry = bits.Add64(high, byHigh, carry)
	}
	return low, high == 0 && carry == 0
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

// nanoseconds converts a number of units without the offset. The result has 128 bits.
func (c *clock) nanoseconds(units uint64) (high, low uint64) {
	switch {
	case c.binary && c.power >= 64:
		high, _ = bits.Mul64(units, 1e9)
		return 0, high >> (c.power - 64)
	case c.binary:
		seconds, rest := units>>c.power, units&(1<<c.power-1)
		restHigh, below := bits.Mul64(rest, 1e9)
		if c.power > 0 {
			below = restHigh<<(64-c.power) | below>>c.power
		}
		high, low = bits.Mul64(seconds, 1e9)
		low, carry := bits.Add64(low, below, 0)
		return high + carry, low
	case c.power > 9+19:
		return 0, 0
	case c.power > 9:
		return 0, units / ten(c.power-9)
	}
	return bits.Mul64(units, ten(9-c.power))
}

// ten is 10 to the power of n, up to 19.
func ten(n uint8) uint64 {
	v := uint64(1)
	for range n {
		v *= 10
	}
	return v
}
