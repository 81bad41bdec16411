package ep

import (
	"fmt"

	"github.com/unifiedd/unifiedd/rdma"
)

// PostList collects work requests of one queue pair, to post them together.
type PostList struct {
	Sends       []rdma.SendRequest
	SendSGEs    []rdma.SGE
	Receives    []rdma.ReceiveRequest
	ReceiveSGEs []rdma.SGE
}

// NewPostList makes a list with room for these numbers of requests and elements.
func NewPostList(sends, sendSGEs, receives, receiveSGEs int) PostList {
	return PostList{
		Sends: make([]rdma.SendRequest, 0, sends), SendSGEs: make([]rdma.SGE, 0, sendSGEs),
		Receives: make([]rdma.ReceiveRequest, 0, receives), ReceiveSGEs: make([]rdma.SGE, 0, receiveSGEs),
	}
}

// Receive adds a receive into the elements.
func (l *PostList) Receive(id uint64, sges ...rdma.SGE) {
	l.Receives = append(l.Receives, rdma.ReceiveRequest{ID: id, SGEs: uint32(len(sges))})
	l.ReceiveSGEs = append(l.ReceiveSGEs, sges...)
}

// Post posts the requests of the list and empties it. It posts receives first: the peer may send
// into them as soon as it receives the sends.
func (l *PostList) Post(q rdma.QueuePair) error {
	if len(l.Receives) > 0 {
		if _, err := q.PostReceive(l.Receives, l.ReceiveSGEs); err != nil {
			return fmt.Errorf("post receives: %w", err)
		}
		l.Receives, l.ReceiveSGEs = l.Receives[:0], l.ReceiveSGEs[:0]
	}
	if len(l.Sends) > 0 {
		if _, err := q.PostSend(l.Sends, l.SendSGEs); err != nil {
			return fmt.Errorf("post sends: %w", err)
		}
		l.Sends, l.SendSGEs = l.Sends[:0], l.SendSGEs[:0]
	}
	return nil
}

// Reset empties the list.
func (l *PostList) Reset() {
	l.Sends, l.SendSGEs, l.Receives, l.ReceiveSGEs = l.Sends[:0], l.SendSGEs[:0], l.Receives[:0], l.ReceiveSGEs[:0]
}

// WorkID makes the ID of a work request: an index, and the generation of the session that posted
// it. Sessions are used again, and a completion of an earlier session must not count for the
// present one.
func WorkID(generation uint32, index int) uint64 {
	return uint64(generation)<<32 | uint64(uint32(index))
}

// SplitWorkID returns the parts of a WorkID. The caller checks the index before use.
func SplitWorkID(id uint64) (generation uint32, index int) { return uint32(id >> 32), int(uint32(id)) }
