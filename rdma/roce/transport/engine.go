package transport

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/unifiedd/unifiedd/internal/align"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// Limits of requests and queues.
const (
	MaxDepth       = 1 << 15 // requests of a queue
	MaxCompletions = 1 << 20 // of a completion queue
	MaxInline      = 512     // bytes of a request
	MaxReads       = 128     // outstanding READs and atomics of a queue pair, in each direction
	MaxMessage     = 1 << 30 // bytes
	MaxLoans       = 1 << 16 // frames of a queue pair

	maxQueuePairs = 1 << 16
)

// Config says how to make an engine. If a number other than QueuePairs is zero, a default applies.
type Config struct {
	Region *umem.Region
	Keys   *Keys // of this region
	// QueuePairs is the largest number of queue pairs at a time.
	QueuePairs int
	// Shard is the engine's index among 1 << ShardBits engines. It is the lower bits of its queue pairs' numbers, so that packets can be
	// steered to the right engine.
	Shard, ShardBits uint8
	// Generation is part of the numbers of the first queue pairs. It should differ from that of an earlier
	// process, whose numbers a peer may still use.
	Generation uint32
	Handles    int      // address handles; default 4096
	MTU        rdma.MTU // the largest that the port carries, and that of datagrams; default 1024
	// Window bounds the unacknowledged packets of a queue pair; default 128. A READ may exceed it.
	Window int
	// AckEvery is the number of packets after which one asks for an ACK, besides the last of
	// each message; default 32, and at most half the window.
	AckEvery int
	// Hold is the largest number of ACKs of a queue pair that one ACK may stand for, if the peer
	// continues to send without them; default 1: no delay.
	Hold int
	// Rate says how queue pairs react to congestion; the zero value: not at all.
	Rate RateControl
	// Burst is how many packets in a row a queue pair may send while others wait; default 16.
	Burst int
}

// Engine runs the protocol of queue pairs. See the package for the threads that may use it.
type Engine struct {
	fastOpen bool // a FastReceive is between Place and Finish; only builds with invariants set it
	config   Config
	region   *umem.Region
	data     []byte
	keys     *Keys
	// handles are the address handles: paths to peers for datagrams. Each is one word, written by the
	// engine's thread and read by threads that post.
	handles handles
	slots   []slot
	free    []uint32        // places of unused slots
	used    uint32          // one past the highest place ever used
	bells   []atomic.Uint64 // doorbells, a bit for each place: its program has posted
	timers  timers
	lists   [concerns]pairList
	groups  map[rdma.GID][]*QueuePair

	completions []*CompletionQueue // completion queues with something to publish
	wakes       []*CompletionQueue
	events      []rdma.Event
	freed       []umem.Frame // returned from loans
	given       uint64       // packets that Send returned
	left        uint64       // those that Transmitted has reported
	time        Time         // of the last call that had one
	resumes     Time         // when the first queue pair may send that rate control holds back

	counts tally[Counter]
	drops  tally[Drop]
}

// slot is a place for a queue pair.
type slot struct {
	pair       *QueuePair
	generation uint32
}

// firstPlace is the lowest place in use: queue pair numbers 0 and 1 are reserved.
const firstPlace = 2

// New makes an engine without queue pairs.
func New(c Config) (*Engine, error) {
	c.setDefaults()
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("make a RoCE engine: %w", err)
	}
	if err := c.Rate.setDefaults(); err != nil {
		return nil, err
	}
	places := align.PowerOfTwo(c.QueuePairs + firstPlace)
	e := &Engine{config: c, region: c.Region, data: c.Region.Data(), keys: c.Keys, handles: newHandles(c.Handles), slots: make([]slot, places),
		bells: make([]atomic.Uint64, (places+63)/64), groups: map[rdma.GID][]*QueuePair{}}
	for i := firstPlace + c.QueuePairs - 1; i >= firstPlace; i-- {
		e.free = append(e.free, uint32(i))
	}
	for i := range e.slots {
		e.slots[i].generation = c.Generation
	}
	e.timers.heap = make([]*QueuePair, 0, places)
	for of := range e.lists {
		e.lists[of] = pairList{ring: make([]*QueuePair, places), of: listKind(of)}
	}
	return e, nil
}

func (c *Config) setDefaults() {
	if c.Handles == 0 {
		c.Handles = 4096
	}
	if c.MTU == 0 {
		c.MTU = rdma.MTU1024
	}
	if c.Window == 0 {
		c.Window = 128
	}
	if c.AckEvery == 0 {
		c.AckEvery = max(1, min(32, c.Window/2))
	}
	if c.Hold == 0 {
		c.Hold = 1
	}
	if c.Burst == 0 {
		c.Burst = 16
	}
}

func (c *Config) check() error {
	switch {
	case c.Region == nil || c.Keys == nil || c.Keys.size != c.Region.Size():
		return fmt.Errorf("it needs a region, and keys of that region")
	case c.QueuePairs < 1 || c.QueuePairs > maxQueuePairs:
		return fmt.Errorf("%d queue pairs: it can have 1 to %d", c.QueuePairs, maxQueuePairs)
	case c.ShardBits > 6 || c.Shard>>c.ShardBits != 0:
		return fmt.Errorf("shard %d of %d: it must be one of at most 64", c.Shard, uint64(1)<<c.ShardBits)
	case c.MTU.Bytes() == 0:
		return fmt.Errorf("path MTU number %d is none of the five", uint32(c.MTU))
	case c.Window < 1 || c.Window > 1<<20 || c.AckEvery < 1 || c.AckEvery > max(1, c.Window/2) || c.Burst < 1 || c.Hold < 1:
		return fmt.Errorf("a window of %d packets, acknowledged every %d, bursts of %d: none of them fits", c.Window, c.AckEvery, c.Burst)
	}
	return nil
}

// nextNumber returns a number for a queue pair at a place: generation, place and shard, 24 bits in
// all. It differs from the last number of the place.
func (e *Engine) nextNumber(place uint32) uint32 {
	shift := bits.Len(uint(len(e.slots) - 1))
	for {
		e.slots[place].generation++
		n := e.slots[place].generation<<shift | place
		if n = (n<<e.config.ShardBits | uint32(e.config.Shard)) & mask24; n != multicast {
			return n
		}
	}
}

const (
	mask24    = 1<<24 - 1
	multicast = mask24 // the queue pair number of multicast groups
)

// find returns the queue pair with that number, nil if there is none.
func (e *Engine) find(qpn uint32) *QueuePair {
	place := qpn >> e.config.ShardBits & uint32(len(e.slots)-1)
	if q := e.slots[place].pair; q != nil && q.qpn == qpn {
		return q
	}
	return nil
}

// Progress calls Send and Await.
func (e *Engine) Progress(now Time, out []Packet) int {
	e.notFast()
	n := e.Send(out)
	e.Await(now)
	return n
}

// Send writes packets to send to out, in order, and returns their number. Requests come before
// ACKs, for which room is reserved. Packets that do not fit wait for the next call. The caller must
// call Await once the packets are on their way.
func (e *Engine) Send(out []Packet) int {
	e.answerBells()
	reserve := 0
	if n := e.lists[answering].n; n > 0 {
		reserve = min(n, (len(out)+3)/4)
	}
	n := e.sendRequests(out[:len(out)-reserve])
	n += e.sendAnswers(out[n:])
	e.counts.add(PacketsSent, uint64(n))
	e.publish()
	return n
}

// Await sets the deadlines for the packets that Send returned.
func (e *Engine) Await(now Time) {
	e.time = now
	for l := &e.lists[waiting]; l.n > 0; {
		if q := l.next(); q.una != q.sent && q.timer.deadline == never {
			q.await(now)
		}
	}
}

// Busy reports whether Send would have packets. It does not look at requests posted since the last
// call.
func (e *Engine) Busy() bool { return e.lists[sending].n+e.lists[answering].n > 0 }

// Tick handles deadlines that have passed. The next Send returns the packets that result.
func (e *Engine) Tick(now Time) {
	e.time = now
	e.resume(now)
	for q := e.timers.expired(now); q != nil; q = e.timers.expired(now) {
		q.expire(now)
	}
	e.publish()
}

// NextDeadline returns when Tick has something to do; ok is false if there is no deadline.
func (e *Engine) NextDeadline() (at Time, ok bool) {
	q := e.timers.first()
	switch pausing := e.lists[pausing].n > 0; {
	case pausing && (q == nil || e.resumes < q.timer.deadline):
		return e.resumes, true
	case q != nil:
		return q.timer.deadline, true
	}
	return never, false
}

// Transmitted reports that the next n of the packets that Send returned have left: nothing reads
// their memory from now on. This completes requests of UC and UD.
func (e *Engine) Transmitted(n int) {
	e.left = min(e.left+uint64(n), e.given)
	l := &e.lists[departing]
	for range l.n {
		if q := l.next(); q.depart() {
			l.add(q)
		}
	}
	e.publish()
}

// publish ends a batch: it makes the results visible to the program.
func (e *Engine) publish() {
	for l := &e.lists[touched]; l.n > 0; {
		l.next().publish()
	}
	for i, c := range e.completions {
		if c.publish() {
			e.wakes = append(e.wakes, c)
		}
		e.completions[i] = nil
	}
	e.completions = e.completions[:0]
}

// list marks a completion queue to be published at the end of the batch.
func (e *Engine) list(c *CompletionQueue) {
	if !c.dirty {
		c.dirty = true
		e.completions = append(e.completions, c)
	}
}

// Publish wakes programs that sleep until the message of a FastReceive arrives, if no Send or
// Receive follows.
func (e *Engine) Publish() {
	if len(e.completions) > 0 {
		e.publish()
	}
}

// ring tells the engine that a queue pair has work for it. Any thread may call it.
func (e *Engine) ring(place uint32) {
	// The caller has published its index before this store. answerBells clears the bit before it loads the index.
	e.bells[place/64].Or(uint64(1) << (place % 64))
}

func (e *Engine) answerBells() {
	for i := range e.bells[:(e.used+63)/64] {
		if e.bells[i].Load() == 0 {
			continue
		}
		for rung := e.bells[i].Swap(0); rung != 0; rung &= rung - 1 {
			if q := e.slots[i*64+bits.TrailingZeros64(rung)].pair; q != nil {
				q.rung()
			}
		}
	}
}

// Events takes at most len(dst) asynchronous events and returns their number.
func (e *Engine) Events(dst []rdma.Event) int { return takeFront(&e.events, dst) }

// Wakes takes completion queues that must wake their program.
func (e *Engine) Wakes(dst []*CompletionQueue) int { return takeFront(&e.wakes, dst) }

// Quiet reports whether Events, Wakes and Freed have nothing.
func (e *Engine) Quiet() bool { return len(e.events)+len(e.wakes)+len(e.freed) == 0 }

// Freed takes frames that Receive had kept. The caller owns them again.
func (e *Engine) Freed(dst []umem.Frame) int { return takeFront(&e.freed, dst) }

// takeFront moves as much as fits from the front of a list.
func takeFront[T any](from *[]T, dst []T) int {
	n := copy(dst, *from)
	if n == 0 {
		return 0
	}
	rest := copy(*from, (*from)[n:])
	clear((*from)[rest:])
	*from = (*from)[:rest]
	return n
}

func (e *Engine) event(k rdma.EventKind, qpn uint32) {
	e.events = append(e.events, rdma.Event{Kind: k, QPN: qpn})
}

// handles are the address handles: paths to peers for datagrams. Each is one word. The engine's
// thread writes it, and threads that post read it.
type handles struct {
	words []atomic.Uint64
	free  []uint32
}

// inUse marks a handle in use; the other bits are the domain and the peer.
const inUse = 1 << 63

const maxDomain = 1<<31 - 1

func newHandles(n int) handles {
	h := handles{words: make([]atomic.Uint64, n), free: make([]uint32, 0, n)}
	for i := n; i > 0; i-- {
		h.free = append(h.free, uint32(i-1))
	}
	return h
}

// NewAddressHandle makes a handle for datagrams to a peer. Queue pairs of the domain can use it.
func (e *Engine) NewAddressHandle(d Domain, p Peer) (id uint32, err error) {
	h := &e.handles
	if len(h.free) == 0 || d > maxDomain {
		return 0, fmt.Errorf("make an address handle: all %d are in use", len(h.words))
	}
	id = h.free[len(h.free)-1]
	h.free = h.free[:len(h.free)-1]
	h.words[id].Store(inUse | uint64(d)<<32 | uint64(p))
	return id, nil
}

// CloseAddressHandle ends a handle. From now on, PostSend refuses requests that name it, and
// requests already posted fail.
func (e *Engine) CloseAddressHandle(id uint32) {
	h := &e.handles
	if uint64(id) < uint64(len(h.words)) && h.words[id].Swap(0) != 0 {
		h.free = append(h.free, id)
	}
}

// find returns the peer of a handle. Any thread may call it.
func (h *handles) find(id uint32, d Domain) (Peer, bool) {
	if uint64(id) >= uint64(len(h.words)) {
		return 0, false
	}
	w := h.words[id].Load()
	return Peer(w), w&inUse != 0 && Domain(w>>32&maxDomain) == d
}

// pairList is a queue of queue pairs, each in it at most once.
type pairList struct {
	ring    []*QueuePair
	head, n int
	of      listKind
}

// listKind says what work the queue pairs in a list have.
type listKind uint8

const (
	sending   listKind = iota // they may have requests to send
	answering                 // they have ACKs or answers to send
	departing                 // they have requests that complete when packets have left
	touched                   // their indices must be published
	waiting                   // they may need a deadline for sent packets
	holding                   // they have delayed ACKs
	pausing                   // rate control does not let them send yet
	concerns
)

// add appends the queue pair unless it is in the list.
func (r *pairList) add(q *QueuePair) {
	if q.listed[r.of] {
		return
	}
	q.listed[r.of] = true
	at := r.head + r.n
	if at >= len(r.ring) {
		at -= len(r.ring)
	}
	r.ring[at] = q
	r.n++
}

// next takes the first. The list must not be empty.
func (r *pairList) next() *QueuePair {
	q := r.ring[r.head]
	r.ring[r.head] = nil
	if r.head++; r.head == len(r.ring) {
		r.head = 0
	}
	r.n--
	q.listed[r.of] = false
	return q
}

// remove takes the queue pair out before it is closed.
func (r *pairList) remove(q *QueuePair) {
	for range r.n {
		if other := r.next(); other != q {
			r.add(other)
		}
	}
}

// Counter is the index of a counter of an engine.
type Counter uint8

// The counters other than drops. Brackets hold the name of Soft-RoCE's counter.
const (
	PacketsSent        Counter = iota // returned by Send [sent_pkts]
	PacketsReceived                   // given to Receive [rcvd_pkts]
	DuplicateRequests                 // answered again [duplicate_request]
	OutOfSequence                     // requests beyond the expected one [out_of_seq_request]
	SequenceNAKsSent                  //
	SequenceNAKs                      // received [rcvd_seq_err]
	RNRSent                           // receiver-not-ready NAKs [send_rnr_err]
	RNRReceived                       // [rcvd_rnr_err]
	NAKsSent                          // of refused requests
	NAKsReceived                      // of refused requests
	ImpliedNAKs                       // an answer arrived after a lost one [completer_retry_err]
	Retries                           // times that requests were retransmitted
	Timeouts                          // of ACKs
	RetriesExceeded                   // [retry_exceeded_err]
	RNRRetriesExceeded                // [retry_rnr_exceeded_err]
	DuplicateResponses                // to requests that were acknowledged before
	PacketsAgain                      // retransmitted packets
	AcksSent                          //
	CopiedBytes                       // payload that was copied when it was placed, or posted inline
	LoanedFrames                      // frames lent to the program
	CongestionMarks                   // packets marked CE by a router
	CNPsSent                          //
	CNPsReceived                      //
	RateCuts                          // a queue pair has slowed down after a CNP
	Flushed                           // flushed work requests
	CompletionsLost                   // in full completion queues
	Counters                          // the number of counters
)

var counterNames = [Counters]string{"packets_sent", "packets_received", "duplicate_requests", "out_of_sequence", "sequence_naks_sent", "sequence_naks",
	"rnr_sent", "rnr_received", "naks_sent", "naks_received", "implied_naks", "retries", "timeouts", "retries_exceeded", "rnr_retries_exceeded",
	"duplicate_responses", "packets_again", "acks_sent", "copied_bytes", "loaned_frames", "congestion_marks", "cnps_sent", "cnps_received", "rate_cuts", "flushed",
	"completions_lost"}

// String returns a name usable in a metric's name.
func (c Counter) String() string {
	if c < Counters {
		return counterNames[c]
	}
	return fmt.Sprintf("counter_%d", uint8(c))
}

// Drop is the reason why a received packet was dropped.
type Drop uint8

const (
	UnknownQueuePair Drop = iota
	WrongPeer             // not from the connected peer's address
	WrongState            // the queue pair does not receive in this state, or it is an answer to no request
	WrongTransport        // the opcode is of another transport
	BadPKey               // of another partition
	BadQKey               // of a datagram
	BadPSN                // of UC: a packet of the message was lost; of a response: it matches no request
	BadSequence           // an opcode that cannot follow the one before
	AheadOfSequence       // of RC: a packet before it is missing
	StaleRequest          // a duplicate whose answer is no longer kept
	NoReceive             // no receive posted, or too many frames on loan
	TooLong               // for the receive
	Invalid               // a wrong length, or an operation that is not enabled
	NoAccess              // a wrong key or address, or a missing right
	LocalFault            // the memory of our receive is not accessible
	BadResponse           // an answer that does not match the request
	NoGroup               // to a group that no queue pair is attached to
	Drops                 // the number of reasons
)

var dropNames = [Drops]string{"unknown_queue_pair", "wrong_peer", "wrong_state", "wrong_transport", "bad_pkey", "bad_qkey", "bad_psn", "bad_sequence",
	"ahead_of_sequence", "stale_request", "no_receive", "too_long", "invalid", "no_access", "local_fault", "bad_response", "no_group"}

// String returns a name usable as a metric's label.
func (d Drop) String() string {
	if d < Drops {
		return dropNames[d]
	}
	return fmt.Sprintf("drop_%d", uint8(d))
}

// tally is an array of counters.
type tally[K ~uint8] [32]uint64

func (t *tally[K]) add(k K, n uint64) { t[k&31] += n }

// Count returns a counter.
func (e *Engine) Count(c Counter) uint64 { return e.counts[c] }

// Dropped returns how many packets were dropped for a reason.
func (e *Engine) Dropped(d Drop) uint64 { return e.drops[d] }

func (e *Engine) count(c Counter) { e.counts.add(c, 1) }

func (e *Engine) drop(d Drop) { e.drops.add(d, 1) }
