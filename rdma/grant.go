package rdma

import (
	"errors"
	"fmt"
	"time"

	"github.com/unifiedd/unifiedd/umem"
)

// Grant is a right of the peer's to a part of a region.
type Grant struct {
	RKey   uint32
	Access Access
	Addr   uint64 // as the peer says it in a request
	Length uint64 // bytes
}

// ErrGrantsBusy says that all work requests Grants may have are under way. Take
// completions and try again.
var ErrGrantsBusy = errors.New("too many grants are being made or revoked")

// GrantsConfig says what Grants are made with. Nothing of it is closed with them.
type GrantsConfig struct {
	QueuePair QueuePair // that of the peer
	Domain    ProtectionDomain
	Region    *umem.Region
	// Memory is the whole region, registered with LocalWrite and BindWindows. It outlives the grants.
	Memory MemoryRegion
	// Most is how many grants there are at once, those that are only kept included.
	Most int
	// Requests is how many work requests of the send queue they may use at once; at least 2.
	// Each has a completion.
	Requests int
	// Register has parts of the region registered also where the device has memory windows.
	Register bool
}

// Grants are the rights of one peer to parts of a region, each of which ends alone. Where the device
// has memory windows of type 2 a grant is a window, bound by the queue pair of the
// peer and good for nobody else. Elsewhere it is a registration of its own, which is made and ended
// by system calls and holds for every queue pair of the protection domain.
//
// A grant that was released is kept, and found again when the same part is to be
// granted with the same rights. The peer keeps the right until it is revoked, which also happens to the
// grant released longest ago when another needs its place.
//
// Grants belong to the thread that posts to the queue pair. That thread gives each completion of
// the send queue to Done first.
type Grants struct {
	config  GrantsConfig
	entries []grantEntry
	places  grantTable
	free    []int32
	idle    grantList
	queued  []SendRequest // to end windows, not posted
	flying  int           // requests queued or posted, and not complete
	began   time.Time
	stats   grantStats
	closed  bool
}

// grantEntry is the place of one grant.
type grantEntry struct {
	Grant
	at           uint64 // in the region
	state        grantState
	window       MemoryWindow // stays with the place
	part         MemoryRegion
	newer, older int32 // in the list of idle ones
	made, ended  int64 // when its requests were posted, nanoseconds from the beginning
}

type grantState uint8

const (
	grantNone    grantState = iota
	grantOut                // handed out
	grantIdle               // released, and kept
	grantLeaving            // being revoked
)

// NewGrants makes room for grants, and all windows.
func NewGrants(c GrantsConfig) (*Grants, error) {
	if c.Most < 1 || c.Requests < 2 {
		return nil, fmt.Errorf("grants: room for %d with %d work requests: at least 1 and 2 are needed", c.Most, c.Requests)
	}
	if caps := c.Domain.Device().Capabilities(); c.Most > max(caps.MaxMemoryWindows, caps.MaxMemoryRegions) {
		return nil, fmt.Errorf("room for %d grants: device %s has %d memory windows and %d registrations", c.Most, c.Domain.Device().Name(), caps.MaxMemoryWindows, caps.MaxMemoryRegions)
	}
	g := &Grants{config: c, entries: make([]grantEntry, c.Most), places: newGrantTable(c.Most), idle: newGrantList(),
		queued: make([]SendRequest, 0, c.Requests), began: time.Now()}
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

func (g *Grants) openWindows() error {
	for n := range g.entries {
		w, err := g.config.Domain.NewWindow()
		if errors.Is(err, ErrUnsupported) && n == 0 {
			g.config.Register = true
			return nil
		}
		if err != nil {
			return fmt.Errorf("window %d of %d for grants: %w", n+1, len(g.entries), err)
		}
		g.entries[n].window = w
	}
	if a := g.config.Memory.Access(); a&BindWindows == 0 || a&LocalWrite == 0 {
		return fmt.Errorf("grants: the memory is registered with %v: it needs local write and window bind", a)
	}
	return nil
}

// Windows reports whether grants are memory windows.
func (g *Grants) Windows() bool { return !g.config.Register }

// Grant grants length bytes of the region from addr, of which there is one grant at a time. A SEND posted
// to the queue pair afterwards may tell the peer of it. The error is ErrGrantsBusy where it would do later.
func (g *Grants) Grant(addr, length uint64, a Access) (Grant, error) {
	if n := g.places.find(addr); n >= 0 {
		e := &g.entries[n]
		switch {
		case e.state == grantLeaving:
			return Grant{}, ErrGrantsBusy
		case e.Length == length && e.Access == a:
			g.handOut(n)
			g.stats.count.hits++
			return e.Grant, nil
		case e.state == grantOut:
			return Grant{}, fmt.Errorf("grant %d bytes from %#x with %v: %d bytes from there are granted with %v, and not released", length, addr, a, e.Length, e.Access)
		}
		if err := g.evict(n); err != nil {
			return Grant{}, err
		}
	}
	return g.newGrant(addr, length, a)
}

// handOut marks a grant that is there as handed out.
func (g *Grants) handOut(n int32) {
	e := &g.entries[n]
	if e.state == grantIdle {
		g.idle.remove(g.entries, n)
		g.stats.count.outstanding++
	}
	e.state = grantOut
}

// newGrant makes a grant in a free place, or in that of the grant released longest ago.
func (g *Grants) newGrant(addr, length uint64, a Access) (Grant, error) {
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
	e.state = grantOut
	g.places.add(addr, n)
	g.stats.count.misses++
	g.stats.count.outstanding++
	return e.Grant, nil
}

// Release keeps a grant that the peer is not to use for now, though it could.
func (g *Grants) Release(addr uint64) {
	n := g.places.find(addr)
	if n < 0 || g.entries[n].state != grantOut {
		return
	}
	g.entries[n].state = grantIdle
	g.idle.add(g.entries, n)
	g.stats.count.outstanding--
}

// Revoke ends the grant from addr. It has ended when Revoked says so: at once where it is a
// registration, and else some time after Post, when its completion was given to Done.
func (g *Grants) Revoke(addr uint64) error {
	n := g.places.find(addr)
	if n < 0 || g.entries[n].state == grantLeaving {
		return nil
	}
	e := &g.entries[n]
	if err := g.end(n, revokeKind); err != nil {
		return err
	}
	if e.state == grantIdle {
		g.idle.remove(g.entries, n)
	} else {
		g.stats.count.outstanding--
	}
	e.state = grantLeaving
	if !g.Windows() {
		g.left(n)
	}
	return nil
}

// Revoked reports whether there is no grant from addr, also none that is ending.
func (g *Grants) Revoked(addr uint64) bool { return g.places.find(addr) < 0 }

// evict ends a grant that is not handed out, so that its place can have another at once.
func (g *Grants) evict(n int32) error {
	if err := g.end(n, evictKind); err != nil {
		return err
	}
	g.idle.remove(g.entries, n)
	g.left(n)
	g.stats.count.evictions++
	return nil
}

// left frees the place of a grant that ended.
func (g *Grants) left(n int32) {
	g.places.remove(g.entries[n].at)
	g.entries[n].state = grantNone
	g.free = append(g.free, n)
}

// Close ends all grants at once. It is for when the queue pair is in error or about to be closed; completions that
// still come are taken by Done. It may be called again, also after an error.
func (g *Grants) Close() error {
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
