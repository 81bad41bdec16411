package fabrics

import (
	"net/netip"
	"strconv"
)

// Entry is a subsystem and its address in the discovery log.
type Entry struct {
	Subsystem string
	Discovery bool // of the discovery subsystem itself
	At        netip.AddrPort
}

// EntryLen is the length in bytes of an entry, and of the header before the first one.
const EntryLen = 1024

// Numbers in entries: TRTYPE, ADRFAM, SUBTYPE, and of RDMA QPTYPE, PRTYPE and CMS.
const (
	transportRDMA    = 1
	familyIPv4       = 1
	familyIPv6       = 2
	subtypeNVM       = 2
	subtypeSelf      = 3
	rdmaConnected    = 1
	rdmaNotSpecified = 1
	rdmaCM           = 1
	// AdminDepth is the smallest number of entries of an admin queue.
	AdminDepth = 32
)

// discoveryPage returns the discovery log page.
func discoveryPage(generation uint64, all []Entry) []byte {
	b := make([]byte, EntryLen*(1+len(all)))
	le.PutUint64(b, generation)
	le.PutUint64(b[8:], uint64(len(all)))
	for i := range all {
		all[i].put(b[EntryLen*(1+i):])
	}
	return b
}

func (e *Entry) put(b []byte) {
	b[0], b[1], b[2] = transportRDMA, familyIPv4, subtypeNVM
	if e.At.Addr().Is6() {
		b[1] = familyIPv6
	}
	if e.Discovery {
		b[2] = subtypeSelf
	}
	le.PutUint16(b[4:], 1) // PORTID
	le.PutUint16(b[6:], AnyController)
	le.PutUint16(b[8:], AdminDepth)
	text(b[32:64], strconv.Itoa(int(e.At.Port())))
	copy(b[256:512], e.Subsystem)
	text(b[512:768], e.At.Addr().String())
	b[768], b[769], b[770] = rdmaConnected, rdmaNotSpecified, rdmaCM
}
