package rdma

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/unifiedd/unifiedd/umem"
)

// SpinPoster is a queue pair whose provider can wait and post in one call. Two calls cost more.
type SpinPoster interface {
	// SpinPost: see the function of the package.
	SpinPost(from CompletionQueue, dst []WorkCompletion, limit time.Duration, requests []SendRequest, sges []SGE) (completed, posted int, err error)
}

// SpinPost waits for completions of a queue, as Spin does. If all of them are successes, it posts
// requests to a queue pair of the same device, as PostSend does. It is for a program that knows its
// next message before the last one has arrived: the peer does not wait while the program processes
// the completions. If a completion failed, SpinPost posts nothing. It does not allocate.
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

// Exchanger is a queue pair of a provider that runs the rounds of an Exchange in one call.
type Exchanger interface {
	// Exchange runs rounds until x.Rounds is 0, a round fails, or about limit has passed. The next call continues where this one
	// ended. It occupies its thread and polls without sleeping. The error is of a completion, or of a request that
	// could not be posted. One thread at a time uses the queue pair, its completion queues and the Exchange. The memory and
	// address handle of the request must exist until it returns.
	Exchange(x *Exchange, limit time.Duration) error
}

// Exchange is a ping-pong of messages, all sent by the same request. Each round waits for the
// peer's message and posts the request at once. It does its bookkeeping while the peer prepares its
// answer.
//
// It waits for a completion of Came. If Came is nil, it waits for the byte Number at Word. If Word
// is nil too, it waits for the completion of the previous request.
type Exchange struct {
	Request SendRequest     // signaled
	Element SGE             // of the request
	Sent    CompletionQueue // where requests complete
	Ahead   int             // requests without a completion, at most; at least 1
	Open    int             // requests without a completion

	Came  CompletionQueue  // not Sent
	Again []ReceiveRequest // posted again whenever as many messages have arrived
	Into  []SGE            // of the receives
	Taken int              // messages whose receives are not posted again

	Word   *uint32 // in memory of the region
	Shift  uint    // of the byte in the word
	Number byte    // the value to wait for; incremented in each round
	Last   *byte   // last byte of the request's message; incremented in each round

	Rounds int      // left
	Begun  bool     // the first request does not wait, or was posted
	Posted []uint64 // times of posting, in nanoseconds of CLOCK_MONOTONIC, the last round's last; nil: not recorded
}

// Lender is a queue pair that delivers SENDs in the frames in which they arrived: one made with
// QueuePairConfig.Loans. The ID of a completion is the address of the message's first byte.
type Lender interface {
	QueuePair
	// Loaned returns frames of messages, in the order of their completions, and their number.
	// All frames of a message but the last have More set; a message without bytes has none.
	// Addr and Len cover the bytes. The caller may read and write the frames until Return; they
	// stay in the device's book. If as many frames are on loan as QueuePairConfig.Loans allows,
	// none arrive until some are returned. It does not block or allocate.
	Loaned(dst []umem.Frame) int
	// Return ends loans in any order. A frame may be returned after the queue pair was closed, but not after
	// its device was. It panics if more frames are returned than are on loan.
	Return(frames []umem.Frame)
}

// Member is a UD queue pair that can join multicast groups.
type Member interface {
	QueuePair
	// Attach makes the queue pair receive datagrams to a group, until Detach or Close.
	Attach(group GID) error
	Detach(group GID) error
}

// Progresser is a device that works on the threads of its callers. Posting and polling drive it. A
// program that waits for something else, such as a peer's WRITE to memory, calls Progress while it
// waits. Progress is short, does not block, and may be called from any goroutine.
type Progresser interface {
	Progress()
}

// Batcher is a device that can send requests of several queue pairs at once, if each send costs a
// system call.
type Batcher interface {
	// Begin holds back requests that any thread posts from now on. End sends them. Both are
	// short, do not block, and may be called from any goroutine. End must follow Begin soon.
	Begin()
	End()
}

// ChooseGID chooses the entry of a port's GID table to send from. For a peer with an IP address it
// takes a RoCE v2 GID of the same family, and a link-local one only if the peer's is link-local. If
// the peer does not matter (the zero Addr) IPv4 comes before IPv6. On InfiniBand it takes the
// first. The lowest index wins between equals.
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

// rank returns a lower number for a better GID.
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
