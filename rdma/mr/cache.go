package mr

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/unifiedd/unifiedd/internal/counter"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/umem"
)

// Grant is a peer's right to access part of a region.
type Grant struct {
	RKey   uint32
	Access rdma.Access
	Addr   uint64 // for the peer's requests
	Length uint64 // bytes
}

// ErrBusy means that all work requests of a cache are in flight. Process completions and try
// again.
var ErrBusy = errors.New("too many grants are being made or revoked")

// Config configures a [Cache]. The Cache closes nothing in it.
type Config struct {
	QueuePair rdma.QueuePair // connected to the peer
	Domain    rdma.ProtectionDomain
	Region    *umem.Region
	// Memory is the whole region, registered with LocalWrite and BindWindows. The caller closes
	// it after the grants.
	Memory rdma.MemoryRegion
	// Most limits the number of grants, including released ones that are kept.
	Most int
	// Requests limits the work requests of the Cache in the send queue; at least 2. Each has a
	// completion.
	Requests int
	// Register makes registrations even if the device has memory windows.
	Register bool
}

// Cache has the rights of one peer to parts of a region. Each grant can be revoked separately. If
// the device has memory windows of type 2, a grant is a window. The peer's queue pair binds it, and
// it is valid only for that queue pair. Otherwise a grant is a registration. System calls make and
// end it, and it is valid for every queue pair of the protection domain.
//
// The Cache keeps a released grant, and uses it again when the same part is granted with the same
// rights. The peer keeps its access until the grant is revoked. If a new grant needs a place, the
// Cache revokes the grant that was released longest ago.
//
// A Cache belongs to the thread that posts to the queue pair. That thread must pass each completion
// of the send queue to Done first.
type Cache struct {
	config  Config
	entries []entry
	places  table
	free    []int32
	idle    list
	queued  []rdma.SendRequest // to invalidate windows, not posted yet
	flying  int                // requests that are queued or posted and have no completion
	began   time.Time
	stats   counter.Published[Stats]
	closed  bool
}

// entry is the place of one grant.
type entry struct {
	Grant
	at           uint64 // in the region
	state        state
	window       rdma.MemoryWindow // belongs to the place
	part         rdma.MemoryRegion
	newer, older int32 // in the list of released grants
	made, ended  int64 // times of posting its requests, in nanoseconds since New
}

type state uint8

const (
	unused   state = iota
	granted        // a peer uses it
	released       // kept for reuse
	revoking       // being revoked
)

// New allocates the places and makes all windows.
func New(c Config) (*Cache, error) {
	if c.Most < 1 || c.Requests < 2 {
		return nil, fmt.Errorf("grants: room for %d with %d work requests: at least 1 and 2 are needed", c.Most, c.Requests)
	}
	if caps := c.Domain.Device().Capabilities(); c.Most > max(caps.MaxMemoryWindows, caps.MaxMemoryRegions) {
		return nil, fmt.Errorf("room for %d grants: device %s has %d memory windows and %d registrations", c.Most, c.Domain.Device().Name(), caps.MaxMemoryWindows, caps.MaxMemoryRegions)
	}
	g := &Cache{config: c, entries: make([]entry, c.Most), places: newTable(c.Most), idle: newList(),
		queued: make([]rdma.SendRequest, 0, c.Requests), began: time.Now()}
	for n := c.Most - 1; n >= 0; n-- {
		g.free = append(g.free, int32(n))
	}
	if c.Register {
		return g, nil
	}
	if err := g.openWindows(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *Cache) openWindows() error {
	for n := range g.entries {
		w, err := g.config.Domain.NewWindow()
		if errors.Is(err, rdma.ErrUnsupported) && n == 0 {
			g.config.Register = true
			return nil
		}
		if err != nil {
			return fmt.Errorf("window %d of %d for grants: %w", n+1, len(g.entries), err)
		}
		g.entries[n].window = w
	}
	if a := g.config.Memory.Access(); a&rdma.BindWindows == 0 || a&rdma.LocalWrite == 0 {
		return fmt.Errorf("grants: the memory is registered with %v: it needs local write and window bind", a)
	}
	return nil
}

// Requests returns the largest number of work requests that the cache has in the send queue.
func (g *Cache) Requests() int { return g.config.Requests }

// Windows reports whether grants are memory windows.
func (g *Cache) Windows() bool { return !g.config.Register }

// Grant grants length bytes of the region from addr. There is at most one grant from an address. A
// SEND that is posted to the queue pair afterwards may announce it to the peer. The error is
// ErrBusy if a later call may succeed.
func (g *Cache) Grant(addr, length uint64, a rdma.Access) (Grant, error) {
	if n := g.places.find(addr); n >= 0 {
		e := &g.entries[n]
		switch {
		case e.state == revoking:
			return Grant{}, ErrBusy
		case e.Length == length && e.Access == a:
			g.handOut(n)
			g.stats.Own.Hits++
			return e.Grant, nil
		case e.state == granted:
			return Grant{}, fmt.Errorf("grant %d bytes from %#x with %v: %d bytes from there are granted with %v, and not released", length, addr, a, e.Length, e.Access)
		}
		if err := g.evict(n); err != nil {
			return Grant{}, err
		}
	}
	return g.newGrant(addr, length, a)
}

// handOut marks an existing grant as in use.
func (g *Cache) handOut(n int32) {
	e := &g.entries[n]
	if e.state == released {
		g.idle.remove(g.entries, n)
		g.stats.Own.Outstanding++
	}
	e.state = granted
}

// newGrant makes a grant in a free place, or in the place of the grant that was released longest
// ago.
func (g *Cache) newGrant(addr, length uint64, a rdma.Access) (Grant, error) {
	if len(g.free) == 0 {
		if g.idle.oldest < 0 {
			return Grant{}, fmt.Errorf("grant %d bytes from %#x: %d grants are handed out, which is the most", length, addr, len(g.entries))
		}
		if err := g.evict(g.idle.oldest); err != nil {
			return Grant{}, err
		}
	}
	n := g.free[len(g.free)-1]
	e := &g.entries[n]
	e.at, e.Length, e.Access = addr, length, a
	if err := g.make(n); err != nil {
		return Grant{}, err
	}
	g.free = g.free[:len(g.free)-1]
	e.state = granted
	g.places.add(addr, n)
	g.stats.Own.Misses++
	g.stats.Own.Outstanding++
	return e.Grant, nil
}

// Release keeps a grant for later use. The peer can still access the part.
func (g *Cache) Release(addr uint64) {
	n := g.places.find(addr)
	if n < 0 || g.entries[n].state != granted {
		return
	}
	g.entries[n].state = released
	g.idle.add(g.entries, n)
	g.stats.Own.Outstanding--
}

// Revoke ends the grant from addr. Revoked reports when it has ended: a registration at once, a
// window some time after Post, when Done has its completion.
func (g *Cache) Revoke(addr uint64) error {
	n := g.places.find(addr)
	if n < 0 || g.entries[n].state == revoking {
		return nil
	}
	e := &g.entries[n]
	if err := g.end(n, revokeKind); err != nil {
		return err
	}
	if e.state == released {
		g.idle.remove(g.entries, n)
	} else {
		g.stats.Own.Outstanding--
	}
	e.state = revoking
	if !g.Windows() {
		g.left(n)
	}
	return nil
}

// Revoked reports whether there is no grant from addr, and none that is being revoked.
func (g *Cache) Revoked(addr uint64) bool { return g.places.find(addr) < 0 }

// evict revokes a released grant, so that its place can be used at once.
func (g *Cache) evict(n int32) error {
	if err := g.end(n, evictKind); err != nil {
		return err
	}
	g.idle.remove(g.entries, n)
	g.left(n)
	g.stats.Own.Evictions++
	return nil
}

// left frees the place of a revoked grant.
func (g *Cache) left(n int32) {
	g.places.remove(g.entries[n].at)
	g.entries[n].state = unused
	g.free = append(g.free, n)
}

// Close ends all grants at once. The queue pair must be in Error or about to be closed. Done still
// accepts later completions. It may be called again, also after an error.
func (g *Cache) Close() error {
	var errs []error
	for n := range g.entries {
		e := &g.entries[n]
		if e.window != nil {
			errs = append(errs, e.window.Close())
		}
		if e.part != nil {
			errs = append(errs, e.part.Close())
		}
	}
	g.closed = true
	g.queued = g.queued[:0]
	return errors.Join(errs...)
}

// The ID of a request of a Cache has grantID in its low 16 bits. No ID of a port has that value
// there. Above it is the kind, and the place is in the high 32 bits.
const grantID = 0xffff

const (
	bindKind   = iota
	evictKind  // the place has another grant already
	revokeKind // the completion frees the place
)

func request(n int32, kind uint64) uint64 { return uint64(uint32(n))<<32 | kind<<16 | grantID }

// make makes the grant that a place describes.
func (g *Cache) make(n int32) error {
	if g.closed {
		return fmt.Errorf("grant: %w", errClosed)
	}
	if g.Windows() {
		return g.bind(n)
	}
	return g.register(n)
}

var errClosed = errors.New("the grants are closed")

func (g *Cache) bind(n int32) error {
	if g.busy() {
		return ErrBusy
	}
	if err := g.Post(); err != nil { // a queued invalidation must come before the bind
		return err
	}
	e, m := &g.entries[n], g.config.Memory
	e.Addr, e.made = m.Addr()+e.at, g.now()
	if err := g.config.QueuePair.Bind(request(n, bindKind), e.window, m, e.Addr, e.Length, e.Access, rdma.Signaled); err != nil {
		return fmt.Errorf("grant %d bytes from %#x: %w", e.Length, e.at, err)
	}
	e.RKey = e.window.RKey()
	g.flying++
	return nil
}

func (g *Cache) register(n int32) error {
	e, begin := &g.entries[n], g.now()
	access := e.Access
	if access&(rdma.RemoteWrite|rdma.RemoteAtomic) != 0 {
		access |= rdma.LocalWrite
	}
	part, err := g.config.Domain.RegisterPart(g.config.Region, e.at, e.Length, access)
	if err != nil {
		return fmt.Errorf("grant %d bytes from %#x: %w", e.Length, e.at, err)
	}
	e.part, e.RKey, e.Addr = part, part.RKey(), part.Addr()
	g.stats.Own.Making.add(g.now() - begin)
	return nil
}

// end revokes a grant, either at once or by a request.
func (g *Cache) end(n int32, kind uint64) error {
	e := &g.entries[n]
	e.ended = g.now()
	if g.Windows() {
		if g.busy() {
			return ErrBusy
		}
		g.queued = append(g.queued, rdma.SendRequest{ID: request(n, kind), Op: rdma.LocalInvalidate, Flags: rdma.Signaled, Immediate: rdma.Invalidate(e.RKey)})
		g.flying++
		return nil
	}
	if e.part != nil {
		if err := e.part.Close(); err != nil {
			return fmt.Errorf("revoke the grant of %d bytes from %#x: %w", e.Length, e.at, err)
		}
		e.part = nil
	}
	g.stats.Own.Revoking.add(g.now() - e.ended)
	return nil
}

// Post posts the requests of Revoke.
func (g *Cache) Post() error {
	if len(g.queued) == 0 {
		return nil
	}
	n, err := g.config.QueuePair.PostSend(g.queued, nil)
	g.queued = g.queued[:copy(g.queued, g.queued[n:])]
	if err != nil {
		return fmt.Errorf("revoke grants: %w", err)
	}
	return nil
}

// Done processes a completion if it belongs to a grant, and reports whether it does. A failed one
// means that the queue pair is in Error, which ends its windows.
func (g *Cache) Done(c *rdma.WorkCompletion) bool {
	if c.ID&0xffff != grantID {
		return false
	}
	n, kind := int32(c.ID>>32), c.ID>>16&0xffff
	if int(n) >= len(g.entries) {
		return false
	}
	g.flying--
	e := &g.entries[n]
	switch {
	case c.Status != rdma.Success:
		g.stats.Own.Failed++
	case kind == bindKind:
		g.stats.Own.Making.add(g.now() - e.made)
	default:
		g.stats.Own.Revoking.add(g.now() - e.ended)
	}
	if kind == revokeKind && e.state == revoking {
		g.left(n)
	}
	return true
}

// busy reports whether no request can be posted now.
func (g *Cache) busy() bool { return g.flying >= g.config.Requests }

func (g *Cache) now() int64 { return int64(time.Since(g.began)) }

// table finds a grant's place by address. It is a hash table with open addressing.
type table struct {
	keys []uint64
	vals []int32 // place + 1; 0: empty
}

func newTable(most int) table {
	size := 1 << bits.Len(uint(2*most))
	return table{keys: make([]uint64, size), vals: make([]int32, size)}
}

func (t *table) home(addr uint64) uint32 {
	return uint32(addr*0x9e3779b97f4a7c15>>32) & uint32(len(t.keys)-1)
}

// slot returns the slot that has the address, or the empty one for it. At least half of all slots
// are empty.
func (t *table) slot(addr uint64) uint32 {
	i := t.home(addr)
	for t.vals[i] != 0 && t.keys[i] != addr {
		i = (i + 1) & uint32(len(t.keys)-1)
	}
	return i
}

// find returns the place for an address, or -1.
func (t *table) find(addr uint64) int32 { return t.vals[t.slot(addr)] - 1 }

func (t *table) add(addr uint64, place int32) {
	i := t.slot(addr)
	t.keys[i], t.vals[i] = addr, place+1
}

// remove empties the slot of an address. It moves up later entries that a search would no longer
// find.
func (t *table) remove(addr uint64) {
	mask := uint32(len(t.keys) - 1)
	hole := t.slot(addr)
	for i := (hole + 1) & mask; t.vals[i] != 0; i = (i + 1) & mask {
		if home := t.home(t.keys[i]); (i-home)&mask >= (i-hole)&mask {
			t.keys[hole], t.vals[hole] = t.keys[i], t.vals[i]
			hole = i
		}
	}
	t.vals[hole] = 0
}

// list has the released grants in the order of their release.
type list struct{ oldest, newest int32 }

func newList() list { return list{-1, -1} }

func (l *list) add(entries []entry, n int32) {
	e := &entries[n]
	e.older, e.newer = l.newest, -1
	if l.newest >= 0 {
		entries[l.newest].newer = n
	} else {
		l.oldest = n
	}
	l.newest = n
}

func (l *list) remove(entries []entry, n int32) {
	e := &entries[n]
	if e.older >= 0 {
		entries[e.older].newer = e.newer
	} else {
		l.oldest = e.newer
	}
	if e.newer >= 0 {
		entries[e.newer].older = e.older
	} else {
		l.newest = e.older
	}
}

// Latency has the number of operations, the sum of their times, and the longest time.
type Latency struct {
	Count    uint64
	Sum, Max time.Duration
}

func (l *Latency) add(nanoseconds int64) {
	l.Count++
	l.Sum += time.Duration(nanoseconds)
	l.Max = max(l.Max, time.Duration(nanoseconds))
}

// Stats are the counters of a Cache since it was made.
type Stats struct {
	Hits        uint64 // grants found again after Release
	Misses      uint64 // grants made
	Evictions   uint64 // grants revoked because another needed the place
	Failed      uint64 // failed requests, including flushed ones
	Outstanding uint64 // grants in use now
	// Making is the time from the request to its completion, or the time of the call that
	// registers. Revoking is the same for revocations, including evictions.
	Making, Revoking Latency
}

// Publish publishes the counters for Stats. The thread of the grants calls it once per batch.
func (g *Cache) Publish() { g.stats.Publish() }

// Stats may be called from any goroutine.
func (g *Cache) Stats() Stats { return g.stats.Load() }
