package mad

import "github.com/unifiedd/unifiedd/rdma"

// Message is one message of any kind. Fields that its kind does not have are zero, or ignored.
type Message struct {
	Kind        Kind
	Transaction uint64
	Local       uint32 // identifier of the sender; in SIDR messages, of the request
	Remote      uint32 // identifier of the receiver; a REQ and SIDR messages have none
	Request     Request
	Reply       Reply
	About       About    // MRA, REJ
	Timeout     uint8    // MRA: the longest time for the answer, 4.096 µs << this
	Reason      uint16   // REJ
	Info        [72]byte // REJ: more about the reason
	InfoBytes   uint8    // at most 72
	RemoteQPN   uint32   // DREQ: the receiver's queue pair
	Status      uint8    // SIDR_REP
	ServiceID   uint64   // SIDR messages
	// Private is the private data. After Decode it has all that the kind has, within the
	// decoded bytes. For Encode it may be shorter.
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
	PSN            uint32 // the first PSN that the receiver sends
	QKey           uint32
	Responder      uint8  // responder resources: how many of the peer's READs and atomics the sender accepts
	Initiator      uint8  // initiator depth: how many READs and atomics the sender may have outstanding
	RemoteResponse uint8  // the longest time for the receiver to answer, 4.096 µs << this
	LocalResponse  uint8  // the longest time for the sender to answer, likewise
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
	AckTimeout          uint8 // for acknowledgements from the sender, 4.096 µs << this
}

// Reply has the fields of a REP.
type Reply struct {
	QKey        uint32
	QPN         uint32
	PSN         uint32
	Responder   uint8 // as in a Request
	Initiator   uint8
	AckDelay    uint8 // of the sender's card, 4.096 µs << this
	Failover    uint8 // whether the sender accepts the alternate path
	FlowControl bool
	RNRRetries  uint8 // for packets from the receiver
	Shared      bool
	GUID        uint64
}

const mask24 = 1<<24 - 1
