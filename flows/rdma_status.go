package flows

import (
	"time"

	"github.com/unifiedd/unifiedd/internal/latency"
)

// ReceivesStatus is the end of a flow at which RDMA clients send.
type ReceivesStatus struct {
	Device     string            `json:"device"`
	Listen     string            `json:"listen"`
	TLS        bool              `json:"tls"`
	Clients    []ClientStatus    `json:"clients"`    // by session, those that left lately among them
	Connected  uint64            `json:"connected"`  // connections that came about
	Broken     uint64            `json:"broken"`     // and those that failed
	Replays    uint64            `json:"replays"`    // messages that had come before
	Refused    map[string]uint64 `json:"refused"`    // clients that were turned away or ended, by reason
	Handshakes map[string]uint64 `json:"handshakes"` // connections that did not come about, by reason
	Method     string            `json:"method"`     // how messages come: send or write
	Posted     int64             `json:"posted"`     // receives, or frames to be written, that wait for a message
	Granted    uint64            `json:"granted"`    // frames that clients may write to now
	Grants     uint64            `json:"grants"`     // and how many there were
}

// ClientStatus is one session of a client, over all its connections.
type ClientStatus struct {
	Name         string    `json:"name"` // of its certificate, else its address
	Session      string    `json:"session"`
	State        string    `json:"state"`
	Messages     uint64    `json:"messages"`
	Bytes        uint64    `json:"bytes"`        // of them, headers included
	Sequence     uint64    `json:"sequence"`     // of the last that came
	Acknowledged uint64    `json:"acknowledged"` // and of the last that is acknowledged
	Limit        uint64    `json:"limit"`        // up to which it may send
	Granted      uint64    `json:"granted"`      // frames that it may write to
	Seen         time.Time `json:"seen"`         // when the last message came
	Error        string    `json:"error,omitempty"`
}

// SendsStatus is the end of a flow that sends to RDMA peers.
type SendsStatus struct {
	Device string       `json:"device"`
	Peers  []PeerStatus `json:"peers"`
}

// PeerStatus is one peer. Offered = Acknowledged + Dropped + Waiting + InFlight.
type PeerStatus struct {
	Name         string            `json:"name"`
	Address      string            `json:"address"`
	State        string            `json:"state"`
	Error        string            `json:"error,omitempty"`       // why the last connection ended, or did not come about
	Certificate  string            `json:"certificate,omitempty"` // the name in it
	Offered      uint64            `json:"offered"`               // messages that were for it
	Acknowledged uint64            `json:"acknowledged"`
	Dropped      map[string]uint64 `json:"dropped"` // messages it did not get, by reason
	Waiting      uint64            `json:"waiting"` // messages that were not sent yet
	InFlight     uint64            `json:"in_flight"`
	Method       string            `json:"method"`            // how messages go to it: send or write; empty before it was connected
	Credit       uint64            `json:"credit"`            // messages that the peer has room for
	Bytes        uint64            `json:"bytes"`             // of payloads sent, each time again
	Resent       uint64            `json:"resent"`            // messages
	Connections  uint64            `json:"connections"`       // that came about
	Failures     uint64            `json:"failures"`          // connections that ended, and attempts that failed
	Latency      *latency.Summary  `json:"latency,omitempty"` // from when a message was taken until the peer acknowledged it
}

// LogStatus is how far a log has come, in positions: each message has one, 1 the first that ever came.
type LogStatus struct {
	Acknowledge  string `json:"acknowledge"` // what an acknowledgement means
	First        uint64 `json:"first"`       // of this run, whether it has come or not
	Last         uint64 `json:"last"`        // given to a message
	Written      uint64 `json:"written"`     // all messages up to this one are
	Durable      uint64 `json:"durable"`
	Acknowledged uint64 `json:"acknowledged"`
	Lost         uint64 `json:"lost"` // records that this run found missing when it began, among those of the newest segments, though earlier ones knew them to be durable
}

// BlocksStatus is the end of a flow at which RDMA clients ask for blocks.
type BlocksStatus struct {
	Device    string            `json:"device"`
	Listen    string            `json:"listen"`
	TLS       bool              `json:"tls"`
	Size      uint64            `json:"size"`      // of what is served
	Requests  uint64            `json:"requests"`  // that came, those refused too
	Served    uint64            `json:"served"`    // requests whose bytes have arrived
	Bytes     uint64            `json:"bytes"`     // of those
	Retried   uint64            `json:"retried"`   // requests that were read again just as they asked, since more than that could not be
	Waited    uint64            `json:"waited"`    // requests that could not be begun at once for want of buffers
	Abandoned uint64            `json:"abandoned"` // requests whose client was gone
	Ended     uint64            `json:"ended"`     // clients that broke the protocol, or failed
	Refused   map[string]uint64 `json:"refused"`   // requests, by reason
	// TurnedAway are clients that were refused, and Handshakes connections that did not come about, by reason.
	TurnedAway map[string]uint64 `json:"turned_away"`
	Handshakes map[string]uint64 `json:"handshakes"`
	Frames     CacheStatus       `json:"frames"`  // what was found in frames, for short requests
	Extents    CacheStatus       `json:"extents"` // and in extents
	Clients    []ReaderStatus    `json:"clients"`
}

// CacheStatus is what was found in the region.
type CacheStatus struct {
	Buffers   int    `json:"buffers"`
	Hits      uint64 `json:"hits"`
	Misses    uint64 `json:"misses"`
	Evictions uint64 `json:"evictions"`
	Reads     uint64 `json:"reads"` // buffers that the disk was asked to fill
	BytesRead uint64 `json:"bytes_read"`
	Failed    uint64 `json:"failed"` // buffers that it did not fill
}

// ReaderStatus is one client who asks for blocks.
type ReaderStatus struct {
	Name     string            `json:"name"` // of its certificate
	Address  string            `json:"address"`
	Since    time.Time         `json:"since"`
	Requests uint64            `json:"requests"`
	Served   uint64            `json:"served"`
	Bytes    uint64            `json:"bytes"`
	Refused  map[string]uint64 `json:"refused"`
}
