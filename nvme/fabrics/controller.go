package fabrics

import "net/netip"

// Controller is the association of one host with a subsystem. It belongs to one thread.
type Controller struct {
	ID        uint16
	Subsystem *Subsystem
	Host      ConnectData    // as it connected
	KeepAlive uint32         // milliseconds in which the host must say something; 0: for ever
	At        netip.AddrPort // where the host reaches it

	cc, csts uint32
	reset    bool
	wanted   uint32 // which asynchronous events

	changed []uint32 // namespaces, not told of or not read
	told    bool     // an event for them was given
	renewed bool     // the discovery log changed, and no event was given
}

// Reset reports whether the host has disabled the controller since it was asked last: then its I/O queues are to be ended.
func (c *Controller) Reset() bool {
	was := c.reset
	c.reset = false
	return was
}

// DataLength is how many bytes a command gives the host; 0: none. A Command with another length of data is wrong.
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

// Admin does a command of the admin queue but Connect, Disconnect and asynchronous event requests. b is DataLength zeroed bytes, which go to the host
// where the status is Success.
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
		return 1, Success // what it names goes on to its end
	case OpKeepAlive:
		return 0, Success
	}
	return 0, InvalidOpcode | DoNotRetry
}

// Property does a Property Get or Set.
func (c *Controller) Property(cmd *Command) (result uint64, s Status) {
	switch cmd.Fabrics {
	case PropertyGet:
		return c.propertyGet(cmd)
	case PropertySet:
		return 0, c.propertySet(cmd)
	}
	return 0, InvalidOpcode | DoNotRetry
}
