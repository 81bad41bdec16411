package fabrics

// Log pages.
const (
	logErrors    = 0x01
	logHealth    = 0x02
	logFirmware  = 0x03
	logChanged   = 0x04
	logANA       = 0x0c
	logDiscovery = 0x70

	logReservations = 0x80
)

const (
	errorEntryLen = 64
	healthLen     = 512
	firmwareLen   = 512
	// maxChanged is the largest number of namespaces in the changed namespace list.
	maxChanged = 1024
)

// logLength returns how many bytes a Get Log Page asks for.
func logLength(cmd *Command) uint64 {
	return (uint64(cmd.Words[0]>>16) | uint64(cmd.Words[1]&0xffff)<<16 + 1) * 4
}

// getLog answers Get Log Page with the requested part of the page, and zeros beyond its end.
func (c *Controller) getLog(cmd *Command, b []byte) Status {
	at := uint64(cmd.Words[2]) | uint64(cmd.Words[3])<<32
	page, s := c.logPage(uint8(cmd.Words[0]), uint8(cmd.Words[0]>>8)&0x7f)
	switch {
	case s != Success:
		return s
	case at%4 != 0 || at > uint64(len(page)):
		return InvalidField | DoNotRetry
	}
	copy(b, page[at:])
	if keep := cmd.Words[0]&(1<<15) != 0; !keep {
		c.seen(uint8(cmd.Words[0]))
	}
	return Success
}

// logPage returns a whole page. specific is the field whose meaning depends on the page (LSP).
func (c *Controller) logPage(id, specific uint8) ([]byte, Status) {
	switch {
	case id == logErrors:
		return make([]byte, errorEntryLen), Success
	case id == logDiscovery && c.Subsystem.Discovery():
		return discoveryPage(c.Subsystem.Discover(c)), Success
	case c.Subsystem.Discovery():
	case id == logHealth:
		return c.health(), Success
	case id == logFirmware:
		b := make([]byte, firmwareLen)
		b[0] = 1
		text(b[8:16], c.Subsystem.Firmware)
		return b, Success
	case id == logChanged:
		return c.changedPage(), Success
	case id == logReservations && c.Subsystem.Reservations:
		return c.noticePage(), Success
	case id == logANA && c.Subsystem.ANA():
		return c.anaPage(specific&anaGroupsOnly != 0), Success
	}
	return nil, InvalidLogPage | DoNotRetry
}

// health returns the SMART page. It reports no faults.
func (c *Controller) health() []byte {
	b := make([]byte, healthLen)
	le.PutUint16(b[1:], 273+25) // kelvin
	b[3], b[4] = 100, 10
	return b
}

// changedPage lists the namespaces that have changed since the host read the page last.
func (c *Controller) changedPage() []byte {
	b := make([]byte, 4*maxChanged)
	if len(c.changed) > maxChanged {
		le.PutUint32(b, allNamespaces)
		return b
	}
	for i, id := range c.changed {
		le.PutUint32(b[4*i:], id)
	}
	return b
}
