package fabrics

// Numbers of features.
const (
	featWriteCache  = 0x06
	featQueues      = 0x07
	featAsyncEvents = 0x0b
	featKeepAlive   = 0x0f
	featHost        = 0x81
	featNotices     = 0x82 // reservation notification mask
	featPersist     = 0x83 // reservation persistence
)

// setFeature executes a Set Features.
func (c *Controller) setFeature(cmd *Command) (uint32, Status) {
	if cmd.Words[0]>>31 != 0 {
		return 0, NotSaveable | DoNotRetry
	}
	value := cmd.Words[1]
	switch uint8(cmd.Words[0]) {
	case featQueues:
		if c.Subsystem.Discovery() || value&0xffff == 0xffff || value>>16 == 0xffff {
			return 0, InvalidField | DoNotRetry
		}
		return c.queues(), Success
	case featKeepAlive:
		c.KeepAlive = value
		return 0, Success
	case featAsyncEvents:
		c.wanted = value
		return 0, Success
	case featNotices:
		return 0, c.mask(cmd.Namespace, value)
	case featPersist:
		if _, s := c.reserved(cmd.Namespace); s != Success {
			return 0, s
		}
		return 0, NotChangeable | DoNotRetry // hosts change it as they register (CPTPL)
	case featWriteCache, featHost:
		return 0, NotChangeable | DoNotRetry
	}
	return 0, InvalidField | DoNotRetry
}

// queues returns the largest numbers of submission and completion queues, each minus one.
func (c *Controller) queues() uint32 {
	n := uint32(c.Subsystem.Queues) - 1
	return n | n<<16
}

// getFeature answers a Get Features. The host identifier is in the data. All other values are the result.
func (c *Controller) getFeature(cmd *Command, b []byte) (uint32, Status) {
	if cmd.Words[0]>>8&7 != 0 { // SEL: only current values
		return 0, InvalidField | DoNotRetry
	}
	switch uint8(cmd.Words[0]) {
	case featQueues:
		return c.queues(), Success
	case featKeepAlive:
		return c.KeepAlive, Success
	case featAsyncEvents:
		return c.wanted, Success
	case featWriteCache:
		return 1, Success
	case featNotices:
		_, s := c.reserved(cmd.Namespace)
		return c.masks[cmd.Namespace], s
	case featPersist:
		n, s := c.reserved(cmd.Namespace)
		if s == Success && n.Reservations.Persist {
			return 1, Success
		}
		return 0, s
	case featHost:
		if cmd.Words[1]&1 == 0 { // 64 bits
			return 0, InvalidField | DoNotRetry
		}
		copy(b, c.Host.Host[:])
		return 0, Success
	}
	return 0, InvalidField | DoNotRetry
}
