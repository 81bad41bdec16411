package mad

import "github.com/unifiedd/unifiedd/rdma"

// Message is one message of any kind. What its kind has not is zero, or ignored.
type Message struct {
	Kind        Kind
	Transaction uint64
	Local       uint32 // identifier of who sends; of SIDR messages that of the request
	Remote      uint32 // identifier of who gets it; a REQ and SIDR messages have none
	Request     Request
	Reply       Reply
	About       About    // MRA, REJ
	Timeout     uint8    // MRA: how long the answer takes at most, 4.096 µs << it
	Reason      uint16   // REJ
	Info        [72]byte // REJ: more about the reason
	InfoBytes   uint8    // at most 72
	RemoteQPN   uint32   // DREQ: the queue pair of who gets it
	Status      uint8    // SIDR_REP
	ServiceID   uint64   // SIDR messages
	// Private is the private data: as much as the kind has, in the bytes that were decoded. To be sent it may be shorter.
	Private []byte
}

// About is the kind of message that another one answers.
type About uint8

const (
	AboutREQ   About = 0
	AboutREP   About = 1
	AboutOther About = 2
)

// Request has the fields of a REQ.
type Request struct {
	ServiceID      uint64
	GUID           uint64 // of the sender's card
	QPN            uint32
	PSN            uint32 // the one that the receiver begins with
	QKey           uint32
	Responder      uint8  // responder resources: READs and atomics of the peer's that the sender takes
	Initiator      uint8  // initiator depth: those that it wants to have outstanding
	RemoteResponse uint8  // how long the receiver may take to answer, 4.096 µs << it
	LocalResponse  uint8  // and how long the sender takes at most
	Transport      uint8  // 0: RC, 1: UC
	FlowControl    bool   // end to end
	Retries        uint8  // for packets of the connection
	RNRRetries     uint8  // likewise
	PKey           uint16 // partition
	MTU            rdma.MTU
	CMRetries      uint8 // for messages like this one
	Shared         bool  // a shared receive queue
	Extended       uint8 // extended transport type, of XRC
	Primary        Path
	Alternate      bool // there is an alternate path
}

// Path is the way between the two ports, as the sender of a REQ sees it.
type Path struct {
	LocalLID, RemoteLID uint16
	Local, Remote       rdma.GID
	FlowLabel           uint32 // 20 bits
	Rate                uint8  // static rate, 6 bits
	TrafficClass        uint8
	HopLimit            uint8
	SL                  uint8 // service level, 4 bits
	SubnetLocal         bool
	AckTimeout          uint8 // for acknowledgements of the sender's, 4.096 µs << it
}

// Reply has the fields of a REP.
type Reply struct {
	QKey        uint32
	QPN         uint32
	PSN         uint32
	Responder   uint8 // as of a Request
	Initiator   uint8
	AckDelay    uint8 // of the sender's card, 4.096 µs << it
	Failover    uint8 // whether the alternate path was taken
	FlowControl bool
	RNRRetries  uint8 // for packets of the receiver's
	Shared      bool
	GUID        uint64
}

const mask24 = 1<<24 - 1
