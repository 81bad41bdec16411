package rdma

import (
	"fmt"
	"time"
)

// An ID of a request of Grants has grantID in its low 16 bits, which a port's has not, above
// it the kind, and the place in the high 32.
const grantID = 0xffff

const (
	bindKind   = iota
	evictKind  // the place is in use again
	revokeKind // the place is free when it is complete
)

func grantRequest(n int32, kind uint64) uint64 { return uint64(uint32(n))<<32 | kind<<16 | grantID }

// make makes the grant that a place describes.
func (g *Grants) make(n int32) error {
	if g.closed {
		return fmt.Errorf("grant: %w", errGrantsClosed)
	}
	if g.Windows() {
		return g.bind(n)
	}
	return g.register(n)
}

var errGrantsClosed = fmt.Errorf("the grants are closed")

func (g *Grants) bind(n int32) error {
	if g.busy() {
		return ErrGrantsBusy
	}
	if err := g.Post(); err != nil { // the window may be bound elsewhere until then
		return err
	}
	e, m := &g.entries[n], g.config.Memory
	e.Addr, e.made = m.Addr()+e.at, g.now()
	if err := g.config.QueuePair.Bind(grantRequest(n, bindKind), e.window, m, e.Addr, e.Length, e.Access, Signaled); err != nil {
		return fmt.Errorf("grant %d bytes from %#x: %w", e.Length, e.at, err)
	}
	e.RKey = e.window.RKey()
	g.flying++
	return nil
}

func (g *Grants) register(n int32) error {
	e, begin := &g.entries[n], g.now()
	access := e.Access
	if access&(RemoteWrite|RemoteAtomic) != 0 {
		access |= LocalWrite
	}
	part, err := g.config.Domain.RegisterPart(g.config.Region, e.at, e.Length, access)
	if err != nil {
		return fmt.Errorf("grant %d bytes from %#x: %w", e.Length, e.at, err)
	}
	e.part, e.RKey, e.Addr = part, part.RKey(), part.Addr()
	g.stats.count.making.add(g.now() - begin)
	return nil
}

// end has a grant end, later or at once.
func (g *Grants) end(n int32, kind uint64) error {
	e := &g.entries[n]
	e.ended = g.now()
	if g.Windows() {
		if g.busy() {
			return ErrGrantsBusy
		}
		g.queued = append(g.queued, SendRequest{ID: grantRequest(n, kind), Op: LocalInvalidate, Flags: Signaled, Immediate: Invalidate(e.RKey)})
		g.flying++
		return nil
	}
	if e.part != nil {
		if err := e.part.Close(); err != nil {
			return fmt.Errorf("revoke the grant of %d bytes from %#x: %w", e.Length, e.at, err)
		}
		e.part = nil
	}
	g.stats.count.revoking.add(g.now() - e.ended)
	return nil
}

// Post posts the requests of Revoke.
func (g *Grants) Post() error {
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

// Done takes a completion if it is one of a grant, and says so. One that did not
// succeed means that the queue pair is in error, by which its windows have ended.
func (g *Grants) Done(c *WorkCompletion) bool {
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
	case c.Status != Success:
		g.stats.count.failed++
	case kind == bindKind:
		g.stats.count.making.add(g.now() - e.made)
	default:
		g.stats.count.revoking.add(g.now() - e.ended)
	}
	if kind == revokeKind && e.state == grantLeaving {
		g.left(n)
	}
	return true
}

// busy reports whether no request can be posted now.
func (g *Grants) busy() bool { return g.flying >= g.config.Requests }

func (g *Grants) now() int64 { return int64(time.Since(g.began)) }
