package fabrics

// Version is 1.4 of the base specification.
const Version = 0x10400

// Offsets of properties.
const (
	propCAP  = 0x00
	propVS   = 0x08
	propCC   = 0x14
	propCSTS = 0x1c
)

const (
	capContiguous = 1 << 16
	capTimeout    = 30 << 24 // half seconds until the controller is ready
	capNVM        = 1 << 37

	ccEnable     = 1 << 0
	ccShutdown   = 3 << 14
	ccSettings   = 0x7f<<4 | 7<<11 // CSS, MPS, AMS: all zero
	ccEntries    = 0xff << 16
	ccEntriesIO  = 6<<16 | 4<<20
	cstsReady    = 1 << 0
	cstsFatal    = 1 << 1
	cstsShutdown = 2 << 2 // complete
)

// capabilities is CAP.
func (c *Controller) capabilities() uint64 {
	return uint64(c.Subsystem.Depth-1) | capContiguous | capTimeout | capNVM
}

// propertyGet answers a Property Get.
func (c *Controller) propertyGet(cmd *Command) (uint64, Status) {
	wide := cmd.Words[0]&7 == 1
	switch offset := cmd.Words[1]; {
	case offset == propCAP && wide:
		return c.capabilities(), Success
	case wide:
	case offset == propVS:
		return Version, Success
	case offset == propCC:
		return uint64(c.cc), Success
	case offset == propCSTS:
		return uint64(c.csts), Success
	}
	return 0, InvalidField | DoNotRetry
}

// propertySet handles Property Set. Only CC can be set.
func (c *Controller) propertySet(cmd *Command) Status {
	if cmd.Words[0]&7 != 0 || cmd.Words[1] != propCC {
		return InvalidField | DoNotRetry
	}
	was, now := c.cc, cmd.Words[2]
	c.cc = now
	switch {
	case now&ccEnable != 0 && was&ccEnable == 0:
		c.enable()
	case now&ccEnable == 0 && was&ccEnable != 0:
		c.csts &^= cstsReady
		c.reset = true
	}
	switch {
	case now&ccShutdown != 0 && was&ccShutdown == 0:
		c.csts = c.csts&^cstsReady | cstsShutdown
	case now&ccShutdown == 0 && was&ccShutdown != 0:
		c.csts &^= cstsShutdown
	}
	return Success
}

// enable makes the controller ready, if it supports the settings of CC.
func (c *Controller) enable() {
	if c.cc&ccSettings != 0 || !c.Subsystem.Discovery() && c.cc&ccEntries != ccEntriesIO {
		c.csts = cstsFatal
		return
	}
	c.csts = cstsReady
}

// Ready reports whether the controller accepts commands other than those of Fabrics.
func (c *Controller) Ready() bool { return c.csts&cstsReady != 0 && c.cc&ccEnable != 0 }
