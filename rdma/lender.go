package rdma

import "github.com/unifiedd/unifiedd/umem"

// Lender is a queue pair that hands SENDs on in the frames they arrived in: one made with QueuePairConfig.Loans. Where a
// message's first byte lies is also the ID of its completion.
type Lender interface {
	QueuePair
	// Loaned takes frames of messages, in the order of their completions, and returns how many there were: of each
	// message those with More set and one without; of one without bytes none. Addr and Len say where the bytes lie. They are the
	// caller's to read and write until Return, and stay in the books of the device; no more arrive than
	// QueuePairConfig.Loans says before some are returned. It does not block or allocate.
	Loaned(dst []umem.Frame) int
	// Return ends loans, in any order; a frame may also be returned after the queue pair was closed, but not after
	// its device was. It panics when there are more than are on loan.
	Return(frames []umem.Frame)
}

// Member is a queue pair of datagrams that can be in multicast groups.
type Member interface {
	QueuePair
	// Attach has datagrams to a group come to the queue pair, until Detach or Close.
	Attach(group GID) error
	Detach(group GID) error
}

// Progresser is a device that works on the threads of its callers. Posting and polling drive it; who waits for something
// else to happen, such as a peer's WRITE to arrive in memory, calls Progress between looks. It takes a moment, waits for
// nobody and may be called from any goroutine.
type Progresser interface {
	Progress()
}
