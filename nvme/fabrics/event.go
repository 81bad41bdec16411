package fabrics

import "slices"

// AsyncEvents is how many asynchronous event requests a host may have outstanding.
const AsyncEvents = asyncEvents

const (
	eventNotice       = 2
	eventReservations = 6 // with the information 0: the log page has a notice
	noticeNamespaces  = 0x00
	noticeANA         = 0x03
	noticeDiscovery   = 0xf0

	wantNamespaces = 1 << 8
	wantANA        = 1 << 11
	wantDiscovery  = 1 << 31
)

// Changed records that a namespace was added, removed or changed. The subsystem has its new list.
func (c *Controller) Changed(namespace uint32) {
	c.removed = slices.DeleteFunc(c.removed, func(id uint32) bool { return id == namespace })
	if c.Subsystem.Namespace(namespace) == nil {
		c.removed = append(c.removed, namespace)
	}
	if !slices.Contains(c.changed, namespace) {
		c.changed = append(c.changed, namespace)
		slices.Sort(c.changed)
	}
}

// Missing returns the status of a command for a namespace that the subsystem does not have. A host
// that is told of removed namespaces may send commands until it has removed its own disk. It may have
// another path to the namespace, and shall try that one. It does not after DoNotRetry.
func (c *Controller) Missing(namespace uint32) Status {
	if c.wanted&wantNamespaces != 0 && c.Subsystem.ANA() && slices.Contains(c.removed, namespace) {
		return AsymmetricAccessInaccessible
	}
	return InvalidNamespace | DoNotRetry
}

// ANAChanged records that the ANA state of a namespace changed. That is no change of the namespace
// itself.
func (c *Controller) ANAChanged() { c.anaChanged = true }

// Renewed records that the discovery log changed.
func (c *Controller) Renewed() { c.renewed = true }

// Event returns the result of an asynchronous event request, if there is an event that the host
// has enabled. It is reported once, until the host has read the log page.
func (c *Controller) Event() (result uint64, is bool) {
	switch {
	case !c.Ready():
	case len(c.changed) > 0 && !c.told && c.wanted&wantNamespaces != 0:
		c.told = true
		return eventNotice | noticeNamespaces<<8 | logChanged<<16, true
	case c.anaChanged && !c.anaTold && c.wanted&wantANA != 0:
		c.anaTold = true
		return eventNotice | noticeANA<<8 | logANA<<16, true
	case len(c.notices) > 0 && !c.noticesTold:
		c.noticesTold = true
		return eventReservations | logReservations<<16, true
	case c.renewed && c.wanted&wantDiscovery != 0:
		c.renewed = false
		return eventNotice | noticeDiscovery<<8 | logDiscovery<<16, true
	}
	return 0, false
}

// seen records that the host has read a log page.
func (c *Controller) seen(page uint8) {
	switch page {
	case logChanged:
		c.changed, c.told = nil, false
	case logReservations:
		if c.noticesTold = false; len(c.notices) > 0 {
			c.notices = c.notices[1:]
		}
	case logANA:
		c.anaChanged, c.anaTold = false, false
	}
}
