package cm

// The commands of rdma_user_cm.h that this package uses.
const (
	cmdCreate     = 0
	cmdDestroy    = 1
	cmdRoute      = 4
	cmdConnect    = 6
	cmdListen     = 7
	cmdAccept     = 8
	cmdReject     = 9
	cmdDisconnect = 10
	cmdAttributes = 11
	cmdEvent      = 12
	cmdOption     = 14
	cmdQuery      = 19
	cmdBind       = 20
	cmdAddress    = 21
	abiVersion    = 4
	spaceTCP      = 0x0106
	queryAddress  = 0
	optionLevelID = 0
	optionService = 0
)

// most is the longest private data that fits a command.
const most = 255

// header begins every command: the length of the rest, and of the answer.
type header struct {
	command uint32
	in, out uint16
}

// handle is the answer to create.
type handle struct{ id uint32 }

type create struct {
	header
	uid, response uint64
	space         uint16
	transport     uint8
	_             [5]uint8
}

// destroy removes an identifier. The answer is the number of the identifier's events that were
// consumed.
type destroy struct {
	header
	response uint64
	id       uint32
	_        uint32
}

// socket is a struct sockaddr_storage: the family in host byte order, a port in network byte order,
// and the rest, which depends on the family.
type socket struct {
	family uint16
	port   [2]uint8
	rest   [124]uint8
}

type bind struct {
	header
	id   uint32
	size uint16
	_    uint16
	addr socket
}

type resolveAddress struct {
	header
	id, timeout    uint32 // milliseconds
	fromSize, size uint16
	_              uint32
	from, to       socket
}

type resolveRoute struct {
	header
	id, timeout uint32
}

type query struct {
	header
	response   uint64
	id, option uint32
}

type queried struct {
	guid        [8]uint8
	port        uint8
	_           uint8
	_           [3]uint16
	local, peer socket
	_           [2]uint32
}

// parameters are the parameters of a connection that is requested or accepted, and of events.
type parameters struct {
	qpn, _              uint32
	private             [most + 1]uint8
	length              uint8
	shared              uint8
	remoteReads, reads  uint8
	_                   uint8
	retries, rnrRetries uint8
	valid               uint8
}

type connect struct {
	header
	parameters parameters
	id         uint32
	_          uint32
	_          [2]uint32
}

type listen struct {
	header
	id, backlog uint32
}

type accept struct {
	header
	uid        uint64
	parameters parameters
	id         uint32
	_          uint32
	_          [2]uint32
}

type reject struct {
	header
	id      uint32
	length  uint8
	_       uint8
	_       [2]uint8
	private [most + 1]uint8
}

type disconnect struct {
	header
	id uint32
}

type attributes struct {
	header
	response  uint64
	id, state uint32
}

type setOption struct {
	header
	value                   uint64
	id, level, name, length uint32
}

type getEvent struct {
	header
	response uint64
}

// reported is an event. Its parameters are in a union with longer ones for datagrams.
type reported struct {
	uid        uint64
	id         uint32
	event      uint32
	status     int32
	parameters parameters
	_          [32]uint8
	_          uint32
	_          [2]uint32
}

// path is a struct ib_uverbs_ah_attr.
type path struct {
	gid        [16]uint8
	flow       uint32
	index      uint8
	hops       uint8
	class      uint8
	_          uint8
	lid        uint16
	sl         uint8
	pathBits   uint8
	staticRate uint8
	global     uint8
	port       uint8
	_          uint8
}

// state holds the attributes for a state change of a queue pair: struct ib_uverbs_qp_attr.
type state struct {
	mask, _, _, mtu, _, _            uint32
	receivePSN, sendPSN, qpn, _      uint32
	address, _                       path
	_                                [5]uint32
	pkey, _                          uint16
	_, _                             uint8
	reads, remoteReads, minRNR, port uint8
	timeout, retries, rnrRetries     uint8
	_, _                             uint8
	_                                [5]uint8
}
