package manager

import (
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/cm"
	"github.com/unifiedd/unifiedd/rdma/roce/mad"
)

// connection is one that is on its way, is, or was lately. All is guarded by the manager's lock but what says otherwise.
type connection struct {
	state         state
	passive       bool
	peerPath      peerPath
	local, remote uint32 // identifiers
	transaction   uint64
	guid          uint64 // of the peer's card
	place         cm.DeviceAddress
	peerState     said
	ours, theirs  endpoint
	mtu           rdma.MTU
	retries       uint8 // for packets of ours
	rnrRetries    uint8
	timeout       uint8 // for acknowledgements of packets of ours
	flowLabel     uint32
	class         uint8 // traffic class
	cmRetries     uint8
	response      uint8 // how long the peer may take to answer

	last     [mad.Size]byte // message that is said again
	kind     mad.Kind       // of it
	tries    uint8          // how often it may be said again
	deadline instant
	limit    instant // when the peer of a half-open connection is given up, however often it was to be told
	probe    probe
	at       int // among the timers

	answers chan answer   // what the step under way waits for: one
	done    chan struct{} // closed when it is over, and the queue pair in ERR
	settled chan struct{} // closed when the peer has heard, or was given up
	queue   rdma.QueuePair
	cause   error // why it is over
	noticed bool  // done is closed, or about to be
}

// endpoint is what one side has of the connection: its queue pair, and the number of the first packet that it expects. A message says which
// the peer is to begin with, and not which the sender will.
type endpoint struct{ qpn, psn uint32 }

// said is what the peer says, as seen from here.
type said struct {
	private            []byte
	reads, remoteReads uint8
}

// answer is how a step ended.
type answer struct {
	event  cm.EventKind
	reason cm.Reason
	silent bool // nobody answered
	said   said
}

// tell ends the step under way.
func (c *connection) tell(a answer) {
	select {
	case c.answers <- a:
	default: // the step was given up
	}
}
