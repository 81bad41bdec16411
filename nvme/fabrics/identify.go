package fabrics

import "math/bits"

// IdentifyLen is the length of the data of Identify, in bytes.
const IdentifyLen = 4096

// The structures that Identify returns (CNS).
const (
	cnsNamespace     = 0x00
	cnsController    = 0x01
	cnsActive        = 0x02
	cnsDescriptors   = 0x03
	cnsNVMNamespace  = 0x05
	cnsNVMController = 0x06
	cnsIndependent   = 0x08
	descriptorNGUID  = 2
	descriptorUUID   = 3
	allNamespaces    = 0xffffffff
)

// identify answers an Identify in IdentifyLen zeroed bytes.
func (c *Controller) identify(cmd *Command, b []byte) Status {
	switch cns := uint8(cmd.Words[0]); cns {
	case cnsController:
		c.identifyController(b)
		return Success
	case cnsNVMController:
		if uint8(cmd.Words[1]>>24) != 0 { // another command set
			return InvalidField | DoNotRetry
		}
		return Success
	case cnsActive:
		return c.identifyActive(cmd.Namespace, b)
	case cnsNamespace, cnsDescriptors, cnsIndependent, cnsNVMNamespace:
		return c.identifyNamespace(cns, cmd, b)
	}
	return InvalidField | DoNotRetry
}

// identifyNamespace answers Identify for one namespace. For one that does not exist the structure
// is all zeros.
func (c *Controller) identifyNamespace(cns uint8, cmd *Command, b []byte) Status {
	n := c.Subsystem.Namespace(cmd.Namespace)
	switch {
	case c.Subsystem.Discovery():
		return InvalidField | DoNotRetry
	case n == nil && (cns != cnsNamespace || cmd.Namespace == allNamespaces || cmd.Namespace == 0):
		return InvalidNamespace | DoNotRetry
	case n == nil:
	case cns == cnsNamespace:
		n.identify(b)
		c.putGroup(n, b[92:])
	case cns == cnsDescriptors:
		n.descriptors(b)
	case cns == cnsIndependent:
		n.independent(b)
		c.putGroup(n, b[4:])
	case uint8(cmd.Words[1]>>24) != 0:
		return InvalidField | DoNotRetry
	}
	return Success
}

// Bits of the Identify Controller structure.
const (
	cmicPorts       = 1 << 0 // several addresses
	cmicControllers = 1 << 1
	cmicANA         = 1 << 3
	oaesNamespaces  = 1 << 8
	oaesANA         = 1 << 11
	oaesDiscovery   = 1 << 31
	ctratt128       = 1 << 0 // host identifiers of 128 bits
	ctrattKeepAlive = 1 << 6 // any command resets the keep-alive timer
	oncsCompare     = 1 << 0
	oncsDataset     = 1 << 2
	oncsZeroes      = 1 << 3
	oncsReserve     = 1 << 5
	// rescap: all types, through a loss of power, and ignored keys as of version 1.3
	rescap          = 0xff
	sglsSupported   = 1 << 0
	sglsKeyed       = 1 << 2
	sglsOffset      = 1 << 20
	vwcPresent      = 1<<0 | 2<<1 // a flush applies to one namespace, never to all
	entrySizes      = 0x66        // of submission queues: 64 bytes
	completionSizes = 0x44
)

// MaxNamespace is the highest namespace ID. The set of namespaces may change while hosts are connected.
const MaxNamespace = 1024

// asyncEvents is the largest number of outstanding asynchronous event requests.
const asyncEvents = 4

// aborts is the largest number of outstanding Aborts.
const aborts = 4

// pageShift is the smallest page size of memory, as a power of two (CAP.MPSMIN).
const pageShift = 12

// identifyController is the identify controller data structure.
func (c *Controller) identifyController(b []byte) {
	s := c.Subsystem
	text(b[4:24], s.Serial)
	text(b[24:64], s.Model)
	text(b[64:72], s.Firmware)
	b[72] = 6 // RAB
	b[77] = uint8(bits.Len32(s.Transfer) - 1 - pageShift)
	le.PutUint16(b[78:], c.ID)
	le.PutUint32(b[80:], Version)
	le.PutUint32(b[96:], ctratt128|ctrattKeepAlive)
	b[258], b[259] = aborts-1, asyncEvents-1
	b[260] = 0x03             // FRMW: one slot, read-only
	b[261] = 1 << 2           // LPA: log pages can be read in parts
	b[262] = 0                // ELPE: one entry
	le.PutUint16(b[320:], 10) // KAS: seconds
	b[512], b[513] = entrySizes, completionSizes
	le.PutUint16(b[514:], s.Depth)
	le.PutUint32(b[516:], MaxNamespace)
	sgls := uint32(sglsSupported | sglsKeyed)
	if s.Capsule > 0 {
		sgls |= sglsOffset
	}
	le.PutUint32(b[536:], sgls)
	copy(b[768:1024], s.NQN)
	le.PutUint32(b[1792:], (CommandLen+s.Capsule)/16)
	le.PutUint32(b[1796:], CompletionLen/16)
	b[1803] = 1 // MSDBD: descriptors of a command
	if s.Discovery() {
		b[111] = controllerDiscovery
		le.PutUint32(b[92:], oaesDiscovery)
		return
	}
	b[111] = controllerIO
	b[76] = cmicPorts | cmicControllers
	events := uint32(oaesNamespaces)
	if s.ANA() {
		b[76] |= cmicANA
		events |= oaesANA
		b[342], b[343] = anaTransition, anaStates
		le.PutUint32(b[344:], MaxNamespace) // ANAGRPMAX
		le.PutUint32(b[348:], MaxNamespace) // NANAGRPID
		le.PutUint32(b[540:], MaxNamespace) // MNAN
	}
	le.PutUint32(b[92:], events)
	optional := uint16(oncsCompare | oncsDataset | oncsZeroes)
	if s.Reservations {
		optional |= oncsReserve
	}
	le.PutUint16(b[520:], optional)
	b[525] = vwcPresent
}

// Kinds of controllers (CNTRLTYPE).
const (
	controllerIO        = 1
	controllerDiscovery = 2
)

// text writes a string, padded with spaces.
func text(b []byte, s string) {
	for i := range b {
		b[i] = ' '
		if i < len(s) {
			b[i] = s[i]
		}
	}
}

// identifyActive lists the namespaces whose IDs are greater than beyond.
func (c *Controller) identifyActive(beyond uint32, b []byte) Status {
	if beyond >= allNamespaces-1 {
		return InvalidNamespace | DoNotRetry
	}
	for at := 0; at < len(b); at += 4 {
		next := uint32(0)
		for _, n := range c.Subsystem.Namespaces {
			if n.ID > beyond && (next == 0 || n.ID < next) {
				next = n.ID
			}
		}
		if next == 0 {
			break
		}
		le.PutUint32(b[at:], next)
		beyond = next
	}
	return Success
}

// identify is the identify namespace data structure.
func (n *Namespace) identify(b []byte) {
	le.PutUint64(b, n.Blocks())     // NSZE
	le.PutUint64(b[8:], n.Blocks()) // NCAP
	if n.Accessible() {
		le.PutUint64(b[16:], n.Blocks()) // NUSE
	}
	b[30] = 1 // NMIC: several controllers
	if n.Reservations != nil {
		b[31] = rescap
	}
	if n.Discard {
		b[33] = 1 << 3 // DLFEAT: Write Zeroes may deallocate blocks
	}
	if n.Preferred > 1 {
		b[24] = 1 << 4 // NSFEAT: the preferred sizes are valid
		for _, at := range []int{64, 66, 68, 70} {
			le.PutUint16(b[at:], uint16(min(n.Preferred, 1<<16)-1))
		}
	}
	if n.ReadOnly {
		b[99] = 1 << 0 // NSATTR
	}
	copy(b[104:], n.UUID[:])
	b[130] = n.Shift // LBAF 0: no metadata
}

// descriptors is the namespace identification descriptor list.
func (n *Namespace) descriptors(b []byte) {
	for _, kind := range []byte{descriptorNGUID, descriptorUUID} {
		b[0], b[1] = kind, 16
		copy(b[4:], n.UUID[:])
		b = b[20:]
	}
}

// independent is the I/O command set independent identify namespace data structure.
func (n *Namespace) independent(b []byte) {
	b[1] = 1 // NMIC
	if n.Reservations != nil {
		b[2] = rescap
	}
	if n.ReadOnly {
		b[8] = 1 << 0 // NSATTR
	}
	b[14] = 1 << 0 // NSTAT: ready
}

// putGroup writes a namespace's ANA group (ANAGRPID).
func (c *Controller) putGroup(n *Namespace, b []byte) {
	if c.Subsystem.ANA() {
		le.PutUint32(b, n.ID)
	}
}
