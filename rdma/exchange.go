package rdma

import "time"

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
