package fabrics

import "net/netip"

// Controller is the association of one host with a subsystem. It belongs to one thread.
type Controller struct {
	ID        uint16
	Subsystem *Subsystem
	Host      ConnectData    // the data of its Connect
	KeepAlive uint32         // milliseconds within which the host must send a command; 0: no limit
	At        netip.AddrPort // the address that the host connects to

	cc, csts uint32
	reset    bool
	wanted   uint32 // the asynchronous events that the host has enabled

	changed []uint32 // changed namespaces that the host has not read
	told    bool     // an event for them was returned
	removed []uint32 // namespaces that the subsystem had since the host connected, and has no more
	renewed bool     // the discovery log changed, and no event was returned

	anaChanged bool // the state of a namespace changed, and the host has not read the ANA log page since
	anaTold    bool // an event for that was returned

	notices     []noticeOf        // that the host has not read
	noticed     uint64            // notices in all
	noticesTold bool              // an event for the first one was returned
	masks       map[uint32]uint32 // of notices, by namespace
}

// Reset reports whether the host has disabled the controller since the last call. The caller must
// then end its I/O queues.
func (c *Controller) Reset() bool {
	was := c.reset
	c.reset = false
	return was
}

// DataLength returns how many bytes a command returns to the host; 0: none. A command with another
// data length is invalid.
func (c *Controller) DataLength(cmd *Command) uint64 {
	switch cmd.Opcode {
	case OpIdentify:
		return IdentifyLen
	case OpGetLogPage:
		return logLength(cmd)
	case OpGetFeatures:
		if uint8(cmd.Words[0]) == featHost {
			return 16
		}
	}
	return 0
}

// Admin executes a command of the admin queue. Connect, Disconnect and asynchronous event requests
// are not for it. b has DataLength zeroed bytes. They go to the host if the status is Success.
func (c *Controller) Admin(cmd *Command, b []byte) (result uint64, s Status) {
	if cmd.Opcode == OpFabrics {
		return c.Property(cmd)
	}
	if !c.Ready() {
		return 0, CommandSequence | DoNotRetry
	}
	switch cmd.Opcode {
	case OpIdentify:
		return 0, c.identify(cmd, b)
	case OpGetLogPage:
		return 0, c.getLog(cmd, b)
	case OpSetFeatures:
		value, s := c.setFeature(cmd)
		return uint64(value), s
	case OpGetFeatures:
		value, s := c.getFeature(cmd, b)
		return uint64(value), s
	case OpAbort:
		return 1, Success // the named command continues to its end
	case OpKeepAlive:
		return 0, Success
	}
	return 0, InvalidOpcode | DoNotRetry
}

// Property executes a Property Get or Set.
func (c *Controller) Property(cmd *Command) (result uint64, s Status) {
	switch cmd.Fabrics {
	case PropertyGet:
		return c.propertyGet(cmd)
	case PropertySet:
		return 0, c.propertySet(cmd)
	}
	return 0, InvalidOpcode | DoNotRetry
}
