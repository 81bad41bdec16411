package rdma

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/unifiedd/unifiedd/umem"
)

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
