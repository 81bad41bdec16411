package cm

import "fmt"

// Reason is why a peer, or its kernel, rejected a connection over InfiniBand or RoCE: enum ib_cm_rej_reason of the
// kernel's include/rdma/ib_cm.h, with its numbers (IBTA specification, volume 1, table 112).
type Reason uint8

const (
	ReasonNoQueuePair  Reason = 1
	ReasonNoResources  Reason = 3
	ReasonTimeout      Reason = 4
	ReasonUnsupported  Reason = 5
	ReasonNoListener   Reason = 8 // invalid service ID
	ReasonStale        Reason = 10
	ReasonInvalidGID   Reason = 12
	ReasonInvalidMTU   Reason = 26
	ReasonTooManyReads Reason = 27
	ReasonConsumer     Reason = 28 // the program rejected it
)

// reasonTexts are the specification's names, and hints what to check.
var reasonTexts = map[Reason]struct{ name, check string }{
	ReasonNoQueuePair:  {"no queue pair available", "the peer's limits"},
	ReasonNoResources:  {"no resources", "that the peer's program takes requests as fast as they come"},
	ReasonTimeout:      {"timeout", "that the peer's program is alive"},
	ReasonUnsupported:  {"unsupported request", "that the peer takes RC connections"},
	ReasonNoListener:   {"invalid service ID", "that a program listens on that port there, through rdma_cm, and on that address"},
	ReasonStale:        {"stale connection", "nothing: the peer still has a connection of an earlier queue pair with this number; try again"},
	ReasonInvalidGID:   {"primary remote GID rejected", "that the address is the peer's"},
	ReasonInvalidMTU:   {"invalid path MTU", "that both network interfaces have the same MTU"},
	ReasonTooManyReads: {"too many READs outstanding", "how many the peer allows"},
	ReasonConsumer:     {"rejected by the peer's program", "what it says"},
}

func (r Reason) String() string {
	if t, ok := reasonTexts[r]; ok {
		return t.name
	}
	return fmt.Sprintf("reason %d", uint8(r))
}
