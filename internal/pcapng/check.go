package pcapng

import "errors"

// checker checks that blocks are ones that this package writes, which are a part of pcapng. Every
// standard reader accepts the blocks that it accepts.
type checker struct {
	section    bool
	interfaces uint32
	linkType   uint16
	snapLen    uint32
}

var (
	errNoSection   = errors.New("does not begin with a section header")
	errSection     = errors.New("not a section header of ours")
	errInterface   = errors.New("not an interface description of ours")
	errInterfaceID = errors.New("names an interface that is not described")
	errPacket      = errors.New("packet lengths that do not fit the block")
	errStatistics  = errors.New("not an interface statistics block of ours")
	errOptions     = errors.New("options that do not fit the block")
	errType        = errors.New("a type of block that unifiedd does not write")
	errNumber      = errors.New("a packet of another batch")
	errPadding     = errors.New("neither a mark nor padding of ours")
)

// block checks one block, in file order, anywhere in a file.
func (c *checker) block(b Block) error {
	if err := c.reason(b); err != nil {
		return &FormatError{Offset: b.Offset, Reason: err}
	}
	return nil
}

func (c *checker) reason(b Block) error {
	if b.Type == TypeSection {
		return c.sectionHeader(b.Body)
	}
	if !c.section {
		return errNoSection
	}
	if b.Type == TypeInterface {
		return c.description(b.Body)
	}
	return c.record(b)
}

// record checks a block that may stand in a batch.
func (c *checker) record(b Block) error {
	switch b.Type {
	case TypePacket:
		return c.packet(b)
	case TypeStatistics:
		return c.statistics(b.Body)
	case TypeMark:
		return checkMark(b)
	}
	return errType
}

func (c *checker) sectionHeader(body []byte) error {
	if c.section || len(body) < 16 || le.Uint32(body) != byteOrderMagic ||
		le.Uint32(body[4:]) != 1 || le.Uint64(body[8:]) != ^uint64(0) {
		return errSection
	}
	c.section = true
	return checkOptions(body[16:], sectionOption)
}

func (c *checker) description(body []byte) error {
	if len(body) < 8 || le.Uint16(body[2:]) != 0 || le.Uint32(body[4:]) > MaxCapLen {
		return errInterface
	}
	linkType, snapLen := le.Uint16(body), le.Uint32(body[4:])
	if c.interfaces > 0 && (linkType != c.linkType || snapLen != c.snapLen) {
		return errInterface
	}
	c.interfaces, c.linkType, c.snapLen = c.interfaces+1, linkType, snapLen
	return checkOptions(body[8:], interfaceOption)
}

func (c *checker) packet(b Block) error {
	p, ok := b.Packet()
	if !ok || uint64(len(p.Data)) > uint64(p.OrigLen) {
		return errPacket
	}
	if p.Interface >= c.interfaces {
		return errInterfaceID
	}
	return checkOptions(b.Body[20+roundUp(uint64(len(p.Data)), 4):], packetOption)
}

func (c *checker) statistics(body []byte) error {
	if len(body) < 12 {
		return errStatistics
	}
	if le.Uint32(body) >= c.interfaces {
		return errInterfaceID
	}
	return checkOptions(body[12:], statisticsOption)
}

// checkMark accepts an intact mark, and any block of ours that does not claim to be a mark.
func checkMark(b Block) error {
	if len(b.Body) < 4 || le.Uint32(b.Body) != PEN {
		return errPadding
	}
	if !claimsMark(b) {
		return nil
	}
	_, _, err := parseMark(b.raw)
	return err
}

// claimsMark distinguishes a mark, intact or not, from padding.
func claimsMark(b Block) bool { return len(b.Body) >= 8 && le.Uint32(b.Body[4:]) == magic }

// checkOptions walks a list of options and calls ok for each. Any bytes may follow the end option.
func checkOptions(list []byte, ok func(code uint16, value []byte) bool) error {
	for len(list) >= 4 {
		code, n := le.Uint16(list), uint64(le.Uint16(list[2:]))
		size := 4 + roundUp(n, 4)
		if size > uint64(len(list)) {
			return errOptions
		}
		value := list[4:][:n]
		if code == optEnd && n == 0 {
			return nil
		}
		if known := ok(code, value); !known && !anyOption(code, value) {
			return errOptions
		}
		list = list[size:]
	}
	return nil
}

// anyOption accepts the options that may stand in every block.
func anyOption(code uint16, value []byte) bool {
	switch code {
	case optComment, optLocal:
		return true
	case optPad:
		return len(value) >= 4 && le.Uint32(value) == PEN
	}
	return false
}

func sectionOption(code uint16, _ []byte) bool { return code >= shbHardware && code <= shbUserAppl }

func interfaceOption(code uint16, value []byte) bool {
	switch code {
	case ifName, ifDescription, ifCardClock:
		return true
	case ifSpeed:
		return len(value) == 8
	case ifTSResol:
		return len(value) == 1 && value[0] == nanoseconds
	case ifFilter:
		return len(value) >= 1 && value[0] == 0
	}
	return false
}

// packetOption accepts epb_flags, epb_dropcount, epb_packetid and epb_queue, which a later version may write.
func packetOption(code uint16, value []byte) bool {
	switch code {
	case 2, 6:
		return len(value) == 4
	case 4, 5:
		return len(value) == 8
	}
	return false
}

func statisticsOption(code uint16, value []byte) bool {
	return code >= isbStart && code <= isbDelivered && len(value) == 8
}
