package rdma

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/unifiedd/unifiedd/umem"
)

// SpinPoster is a queue pair of a provider that waits and posts in one call, because each call
// costs.
type SpinPoster interface {
	// SpinPost is that of the package.
	SpinPost(from CompletionQueue, dst []WorkCompletion, limit time.Duration, requests []SendRequest, sges []SGE) (completed, posted int, err error)
}

// SpinPost waits for completions of a queue, as Spin does, and when they all are of success posts requests to a queue pair of the same
// device, as PostSend does: for a program that knows its answer before it is asked, or its next question before the last is answered. What it
// does about the completions is then no part of the time that the peer waits. With a completion that failed nothing is posted. It
// allocates and blocks no more than those.
func SpinPost(q QueuePair, from CompletionQueue, dst []WorkCompletion, limit time.Duration, requests []SendRequest, sges []SGE) (completed, posted int, err error) {
	if s, ok := q.(SpinPoster); ok {
		return s.SpinPost(from, dst, limit, requests, sges)
	}
	if completed, err = from.Spin(dst, limit); err != nil || completed == 0 {
		return completed, 0, err
	}
	for i := range dst[:completed] {
		if dst[i].Status != Success {
			return completed, 0, nil
		}
	}
	posted, err = q.PostSend(requests, sges)
	return completed, posted, err
}

// Exchanger is a queue pair of a provider that does the rounds of an Exchange in one call.
type Exchanger interface {
	// Exchange does rounds until x.Rounds is 0, a round fails, or about as long has gone by as limit says; who calls again goes on where the call before
	// ended. It holds its thread all the time, and looks for what it waits for without sleeping. An error is that of a completion, or of what
	// could not be posted. One thread at a time uses the queue pair, its completion queues and the Exchange; what the request names, memory and
	// address handle, stays until it returns.
	Exchange(x *Exchange, limit time.Duration) error
}

// Exchange is messages to and fro, one at a time, all by one request. In each round the peer's message is waited for and the request is posted at that moment, with
// nothing else in between: what else there is to do is done while the peer has its turn.
//
// What is waited for is a completion of Came; where that is nil, the byte Number at Word; and without that one too, that
// the request before is complete.
type Exchange struct {
	Request SendRequest     // signaled
	Element SGE             // of the request
	Sent    CompletionQueue // where requests complete
	Ahead   int             // requests that may be open, that is, not known to be complete; at least 1
	Open    int             // requests that are open

	Came  CompletionQueue  // not Sent
	Again []ReceiveRequest // posted whenever as many messages have come as these are
	Into  []SGE            // of the receives
	Taken int              // messages whose receives were not posted again

	Word   *uint32 // in memory of the region
	Shift  uint    // of the byte in the word
	Number byte    // the value waited for, one more in each round
	Last   *byte   // of the request's message, one more in each round

	Rounds int      // left
	Begun  bool     // the first request needs no waiting, or was posted
	Posted []uint64 // when each request was posted, in nanoseconds of CLOCK_MONOTONIC, the last round's last. Nil keeps none
}

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

// Batcher is a device that can send what is posted to several queue pairs at once, where each time that it sends costs.
type Batcher interface {
	// Begin has requests that are posted from now on wait, those of other threads too, at most until End, which has all of them sent. Both take
	// a moment, wait for nobody and may be called from any goroutine; each Begin has its End soon.
	Begin()
	End()
}

// ChooseGID picks the place of a port's table to send from. To reach a peer with an IP
// address it takes a RoCE v2 GID of the same family, and one that is not of this link only unless the
// peer's is; IPv4 before IPv6 where the peer does not matter (the zero Addr). On
// InfiniBand it takes the first. The lowest index wins between equals.
func ChooseGID(table []GIDEntry, peer netip.Addr) (GIDEntry, error) {
	fit := slices.DeleteFunc(slices.Clone(table), func(e GIDEntry) bool { return !suits(e, peer.Unmap()) })
	if len(fit) == 0 {
		return GIDEntry{}, noGID(table, peer)
	}
	return slices.MinFunc(fit, func(a, b GIDEntry) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Index, b.Index)) }), nil
}

// suits reports whether packets with the GID can reach the peer.
func suits(e GIDEntry, peer netip.Addr) bool {
	switch {
	case e.Type == InfiniBand:
		return true
	case e.Type != RoCE2:
		return false
	case !peer.IsValid():
		return true
	}
	return e.GID.Is4() == peer.Is4() && e.GID.IsLinkLocal() == peer.IsLinkLocalUnicast()
}

// rank is lower for the better.
func rank(e GIDEntry) int {
	switch {
	case e.GID.IsLinkLocal():
		return 2
	case e.GID.Is4():
		return 0
	}
	return 1
}

func noGID(table []GIDEntry, peer netip.Addr) error {
	if len(table) == 0 {
		return fmt.Errorf("the port has no GID: give its network interface an IP address and set it up")
	}
	family := "IPv6"
	if peer.Unmap().Is4() {
		family = "IPv4"
	}
	if peer.IsValid() {
		return fmt.Errorf("no RoCE v2 GID of the port can reach %v: give its network interface an %s address (it has %v)", peer, family, gids(table))
	}
	return fmt.Errorf("the port has no RoCE v2 GID, only %v", gids(table))
}

func gids(table []GIDEntry) (texts []string) {
	for _, e := range table {
		texts = append(texts, fmt.Sprintf("%v (%v)", e.GID, e.Type))
	}
	return texts
}
