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

// NewPostList makes a list with room for so many requests and elements.
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

// Post posts what the list has, and empties it. Receives go first: they are for what the peer sends
// when it sees the sends.
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

// WorkID makes the ID of a work request: an index, and the generation of the session that posted it.
// Sessions are used again, and completions of an earlier one must not be taken for the present one's.
func WorkID(generation uint32, index int) uint64 {
	return uint64(generation)<<32 | uint64(uint32(index))
}

// split returns the parts of a WorkID.
func split(id uint64) (generation uint32, index int) { return uint32(id >> 32), int(uint32(id)) }
