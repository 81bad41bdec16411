package fabrics

// noticeOf is a notice about reservations of a namespace.
type noticeOf struct {
	namespace uint32
	kind      NoticeKind
}

// noticeLen is the length of the reservation notification log page, and maxNotices the largest number
// of notices that wait for a host. Further ones are lost; the count in the page shows that.
const (
	noticeLen  = 64
	maxNotices = 64
)

// Notify records a notice for the controller's host, unless the host has masked its kind.
func (c *Controller) Notify(namespace uint32, kind NoticeKind) {
	if c.masks[namespace]&(1<<kind) != 0 {
		return
	}
	c.noticed++
	if len(c.notices) < maxNotices {
		c.notices = append(c.notices, noticeOf{namespace, kind})
	}
}

// noticePage returns the first notice. It is over once the host has read it.
func (c *Controller) noticePage() []byte {
	b := make([]byte, noticeLen)
	if len(c.notices) == 0 {
		return b
	}
	n := c.notices[0]
	le.PutUint64(b, c.noticed-uint64(len(c.notices))+1)
	b[8], b[9] = uint8(n.kind), uint8(len(c.notices)-1)
	le.PutUint32(b[12:], n.namespace)
	return b
}

// reserved returns a namespace that has reservations.
func (c *Controller) reserved(id uint32) (*Namespace, Status) {
	n := c.Subsystem.Namespace(id)
	switch {
	case !c.Subsystem.Reservations:
		return nil, InvalidField | DoNotRetry
	case n == nil:
		return nil, InvalidNamespace | DoNotRetry
	case n.Reservations == nil:
		return nil, InvalidField | DoNotRetry
	}
	return n, Success
}

// mask sets which kinds of notices about a namespace, or all, the host does not want.
func (c *Controller) mask(id, kinds uint32) Status {
	if c.masks == nil {
		c.masks = make(map[uint32]uint32)
	}
	if id != allNamespaces {
		_, s := c.reserved(id)
		if s == Success {
			c.masks[id] = kinds
		}
		return s
	}
	if !c.Subsystem.Reservations {
		return InvalidField | DoNotRetry
	}
	for _, n := range c.Subsystem.Namespaces {
		c.masks[n.ID] = kinds
	}
	return Success
}
