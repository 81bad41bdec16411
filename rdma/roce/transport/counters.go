package transport

import "fmt"

// Counter is something the engine counts.
type Counter uint8

// What is counted besides drops. The names in brackets are Soft-RoCE's for the same.
const (
	PacketsSent        Counter = iota // given to the caller [sent_pkts]
	PacketsReceived                   // given to Receive [rcvd_pkts]
	DuplicateRequests                 // of READs, atomics and others, answered again [duplicate_request]
	OutOfSequence                     // requests ahead of the one expected [out_of_seq_request]
	SequenceNAKsSent                  //
	SequenceNAKs                      // received [rcvd_seq_err]
	RNRSent                           // receiver-not-ready NAKs [send_rnr_err]
	RNRReceived                       // [rcvd_rnr_err]
	NAKsSent                          // of requests that were refused
	NAKsReceived                      // likewise
	ImpliedNAKs                       // an answer behind a lost one came [completer_retry_err]
	Retries                           // times that requests were sent again
	Timeouts                          // of acknowledgements
	RetriesExceeded                   // [retry_exceeded_err]
	RNRRetriesExceeded                // [retry_rnr_exceeded_err]
	DuplicateResponses                // of what was acknowledged before
	PacketsAgain                      // packets sent again
	AcksSent                          //
	CopiedBytes                       // payload that was placed by a copy, or posted inline
	LoanedFrames                      // handed out in place
	CongestionMarks                   // packets that a router had marked
	CNPsSent                          //
	CNPsReceived                      //
	Flushed                           // work requests
	CompletionsLost                   // in full completion queues
	Counters                          // how many there are
)

var counterNames = [Counters]string{"packets_sent", "packets_received", "duplicate_requests", "out_of_sequence", "sequence_naks_sent", "sequence_naks",
	"rnr_sent", "rnr_received", "naks_sent", "naks_received", "implied_naks", "retries", "timeouts", "retries_exceeded", "rnr_retries_exceeded",
	"duplicate_responses", "packets_again", "acks_sent", "copied_bytes", "loaned_frames", "congestion_marks", "cnps_sent", "cnps_received", "flushed",
	"completions_lost"}

// String is a name fit for a metric.
func (c Counter) String() string {
	if c < Counters {
		return counterNames[c]
	}
	return fmt.Sprintf("counter_%d", uint8(c))
}

// Drop is why a packet that came changed nothing.
type Drop uint8

const (
	UnknownQueuePair Drop = iota
	WrongPeer             // from another address than the connected peer's
	WrongState            // the queue pair does not receive, or has not asked
	WrongTransport        // the opcode is of another transport
	BadPKey               // a partition that is not ours
	BadQKey               // of a datagram
	BadPSN                // of UC: a packet of the message was lost; of a response: to nothing asked
	BadSequence           // an opcode that cannot follow
	AheadOfSequence       // of RC: a packet before it is missing
	StaleRequest          // a duplicate whose answer is not kept any more
	NoReceive             // no receive posted, or too many frames on loan
	TooLong               // for the receive
	Invalid               // lengths that do not fit, an operation that is not enabled
	NoAccess              // a key, an address or a right
	LocalFault            // the memory of a receive of ours
	BadResponse           // an answer that does not fit what was asked
	NoGroup               // a multicast that no queue pair is attached to
	Drops                 // how many there are
)

var dropNames = [Drops]string{"unknown_queue_pair", "wrong_peer", "wrong_state", "wrong_transport", "bad_pkey", "bad_qkey", "bad_psn", "bad_sequence",
	"ahead_of_sequence", "stale_request", "no_receive", "too_long", "invalid", "no_access", "local_fault", "bad_response", "no_group"}

// String is a name fit for a metric's label.
func (d Drop) String() string {
	if d < Drops {
		return dropNames[d]
	}
	return fmt.Sprintf("drop_%d", uint8(d))
}

// tally is counts.
type tally[K ~uint8] [32]uint64

func (t *tally[K]) add(k K, n uint64) { t[k&31] += n }

// Count is a counter.
func (e *Engine) Count(c Counter) uint64 { return e.counts[c] }

// Dropped is how many packets were dropped for the reason.
func (e *Engine) Dropped(d Drop) uint64 { return e.drops[d] }

func (e *Engine) count(c Counter) { e.counts.add(c, 1) }

func (e *Engine) drop(d Drop) { e.drops.add(d, 1) }
