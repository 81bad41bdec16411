package transport

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// Limits of what can be asked for.
const (
	MaxDepth       = 1 << 15 // requests of a queue
	MaxCompletions = 1 << 20 // of a completion queue
	MaxInline      = 512     // bytes of a request
	MaxReads       = 128     // READs and atomics of a queue pair outstanding, ours or the peer's
	MaxMessage     = 1 << 30 // bytes
	MaxLoans       = 1 << 16 // frames of a queue pair

	maxQueuePairs = 1 << 16
)

// Config says what engine to make. The zero value of each number but QueuePairs stands for a default.
type Config struct {
	Region *umem.Region
	Keys   *Keys // of this region
	// QueuePairs is the most there can be at once.
	QueuePairs int
	// Shard of 1 << ShardBits engines: the lower bits of its queue pairs' numbers, by which packets can be
	// given to the right one.
	Shard, ShardBits uint8
	// Generation is in the numbers of the first queue pairs, which should not be those that a process before this one
	// had: a peer may not have forgotten these.
	Generation uint32
	Handles    int      // address handles; default 4096
	MTU        rdma.MTU // the most the port carries, and what datagrams may have; default 1024
	// Window is how many packets of a queue pair may be unacknowledged; default 128. A READ may go beyond it.
	Window int
	// AckEvery is the number of packets after which one asks for an acknowledgement, besides the last of
	// each message; default 32, and at most half the window.
	AckEvery int
	// Hold is how many acknowledgements a queue pair may keep back for one that says them all, from a peer that goes on
	// without them; default 1, that is none.
	Hold int
	// Burst is how many packets in a row a queue pair may send while others wait; default 16.
	Burst int
}

// Engine is the protocol machine of queue pairs.
type Engine struct {
	fastOpen bool // a FastReceive is between Place and Finish; only builds with invariants set it
	config   Config
	region   *umem.Region
	data     []byte
	keys     *Keys
	handles  handles
	slots    []slot
	free     []uint32        // places of slots that are not used
	used     uint32          // one past the highest place that ever was
	bells    []atomic.Uint64 // a bit for each place: its program has posted
	timers   timers
	lists    [concerns]pairList
	groups   map[rdma.GID][]*QueuePair

	completions []*CompletionQueue // with something to publish
	wakes       []*CompletionQueue
	events      []rdma.Event
	freed       []umem.Frame // came back from loans
	given       uint64       // packets that Progress gave
	left        uint64       // of those, how many have left

	counts tally[Counter]
	drops  tally[Drop]
}

// slot is a place for a queue pair.
type slot struct {
	pair       *QueuePair
	generation uint32
}

// firstPlace is the lowest place that is given: numbers 0 and 1 have a meaning of their own.
const firstPlace = 2

// New makes an engine without queue pairs.
func New(c Config) (*Engine, error) {
	c.setDefaults()
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("make a RoCE engine: %w", err)
	}
	places := roundUp(c.QueuePairs + firstPlace)
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

// nextNumber is a number for a queue pair at a place: generation, place, shard, 24 bits in all. The place had
// another one last time.
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
	multicast = mask24 // the queue pair number of groups
)

// find is the queue pair with that number, nil when there is none.
func (e *Engine) find(qpn uint32) *QueuePair {
	place := qpn >> e.config.ShardBits & uint32(len(e.slots)-1)
	if q := e.slots[place].pair; q != nil && q.qpn == qpn {
		return q
	}
	return nil
}

// Progress is Send and Await.
func (e *Engine) Progress(now Time, out []Packet) int {
	e.notFast()
	n := e.Send(out)
	e.Await(now)
	return n
}

// Send does what is to be done without a packet that came, and writes packets to be sent to
// out, in order; it returns how many. Requests go before acknowledgements, which have room kept for them. What
// there is no room for waits for the next call. Await follows, when the packets are on their way.
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

// Await sets the deadlines of what Send has given.
func (e *Engine) Await(now Time) {
	for l := &e.lists[waiting]; l.n > 0; {
		if q := l.next(); q.una != q.sent && q.timer.deadline == never {
			q.await(now)
		}
	}
}

// Busy says whether Progress would have packets to send, as far as is known without looking at what was
// posted since.
func (e *Engine) Busy() bool { return e.lists[sending].n+e.lists[answering].n > 0 }

// Tick does what is due: retries after timeouts and waits. Progress sends what comes of it.
func (e *Engine) Tick(now Time) {
	for q := e.timers.expired(now); q != nil; q = e.timers.expired(now) {
		q.expire(now)
	}
	e.publish()
}

// NextDeadline is when Tick has something to do; ok is false when there is no such time.
func (e *Engine) NextDeadline() (at Time, ok bool) {
	if q := e.timers.first(); q != nil {
		return q.timer.deadline, true
	}
	return never, false
}

// Transmitted says that n more packets, of those that Progress gave, in order, have left: nothing
// reads their memory any more. Requests of UC and UD complete by it.
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

// publish ends a batch: what happened in it is shown to the program.
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

// list has a completion queue published at the end of the batch.
func (e *Engine) list(c *CompletionQueue) {
	if !c.dirty {
		c.dirty = true
		e.completions = append(e.completions, c)
	}
}

// Publish wakes programs that sleep until the message of a FastReceive comes, where nothing else does.
func (e *Engine) Publish() {
	if len(e.completions) > 0 {
		e.publish()
	}
}

// ring tells the engine that there is something for it on a queue pair. Any thread may.
func (e *Engine) ring(place uint32) {
	// Ordered behind the index that the caller has published; answerBells clears the bit before it reads that.
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

// Events takes what happened to queue pairs and completion queues, at most len(dst), and returns how many.
func (e *Engine) Events(dst []rdma.Event) int { return takeFront(&e.events, dst) }

// Wakes takes the completion queues that were armed and have what they were armed for.
func (e *Engine) Wakes(dst []*CompletionQueue) int { return takeFront(&e.wakes, dst) }

// Quiet reports whether Events, Wakes and Freed have nothing.
func (e *Engine) Quiet() bool { return len(e.events)+len(e.wakes)+len(e.freed) == 0 }

// Freed takes frames that were kept by Receive and are the caller's again.
func (e *Engine) Freed(dst []umem.Frame) int { return takeFront(&e.freed, dst) }

// takeFront moves what fits from the front of a list.
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

// handles are the address handles: ways to peers for datagrams. Each is one word, written by the
// engine's thread and read by those that post.
type handles struct {
	words []atomic.Uint64
	free  []uint32
}

// inUse marks a handle; beside it are the domain and the peer.
const inUse = 1 << 63

const maxDomain = 1<<31 - 1

func newHandles(n int) handles {
	h := handles{words: make([]atomic.Uint64, n), free: make([]uint32, 0, n)}
	for i := n; i > 0; i-- {
		h.free = append(h.free, uint32(i-1))
	}
	return h
}

// NewAddressHandle makes a handle for datagrams to a peer, which queue pairs of the domain can use.
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

// CloseAddressHandle ends a handle: requests that name it are refused, and those posted before fail.
func (e *Engine) CloseAddressHandle(id uint32) {
	h := &e.handles
	if uint64(id) < uint64(len(h.words)) && h.words[id].Swap(0) != 0 {
		h.free = append(h.free, id)
	}
}

// find is the peer of a handle. Any thread may ask.
func (h *handles) find(id uint32, d Domain) (Peer, bool) {
	if uint64(id) >= uint64(len(h.words)) {
		return 0, false
	}
	w := h.words[id].Load()
	return Peer(w), w&inUse != 0 && Domain(w>>32&maxDomain) == d
}

// pairList is queue pairs in turn, each at most once.
type pairList struct {
	ring    []*QueuePair
	head, n int
	of      listKind
}

// listKind is what queue pairs are in a list of queue pairs for.
type listKind uint8

const (
	sending   listKind = iota // they may have requests to send
	answering                 // they have acknowledgements or answers to send
	departing                 // they have requests that complete when packets have left
	touched                   // their indices are to be published
	waiting                   // they may need a deadline for what they have sent
	holding                   // they have acknowledgements to send that are held back
	concerns
)

// add puts the queue pair at the end unless it is there already.
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

// next takes the first; there is one.
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

// remove takes out the queue pair, which is about to go.
func (r *pairList) remove(q *QueuePair) {
	for range r.n {
		if other := r.next(); other != q {
			r.add(other)
		}
	}
}

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
