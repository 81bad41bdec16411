//go:build verbs && cgo

package verbs

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/internal/labenv"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/mr"
)

// granting is a queue pair that grants access, and another one that uses the grants.
type granting struct {
	*bench
	x, y   *end // y gets the grants
	grants *mr.Cache
	got    [8]rdma.WorkCompletion
}

func (b *bench) granting(most, requests int, register bool) *granting {
	b.t.Helper()
	g := &granting{bench: b}
	g.x, g.y = b.pair(config(rdma.RC))
	g.grants = testenv.Opened(b.t, func() (*mr.Cache, error) {
		return mr.New(mr.Config{QueuePair: g.x.qp, Domain: b.pd, Region: b.region, Memory: b.memory, Most: most, Requests: requests, Register: register})
	})
	return g
}

func (g *granting) grant(addr, length uint64, a rdma.Access) mr.Grant {
	g.t.Helper()
	var to mr.Grant
	g.wait("a grant", func() (err error) {
		to, err = g.grants.Grant(addr, length, a)
		return err
	})
	return to
}

// wait repeats f while it returns ErrBusy.
func (g *granting) wait(what string, f func() error) {
	g.t.Helper()
	g.until(what, func() bool {
		err := f()
		if err != nil && !errors.Is(err, mr.ErrBusy) {
			g.t.Fatal(err)
		}
		return err == nil
	})
}

// until polls without sleeping, so that latencies are those of the device.
func (g *granting) until(what string, cond func() bool) {
	g.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		g.take()
		if cond() {
			return
		}
		if time.Now().After(end) {
			g.t.Fatalf("no %s in 10 s", what)
		}
	}
}

// take passes completions to the grants.
func (g *granting) take() {
	g.t.Helper()
	n, err := g.x.cq.Poll(g.got[:])
	testenv.Must(g.t, err)
	for i := range g.got[:n] {
		if !g.grants.Done(&g.got[i]) || g.got[i].Status != rdma.Success {
			g.t.Fatalf("%+v", g.got[i])
		}
	}
}

func (g *granting) revoke(addr uint64) {
	g.t.Helper()
	g.wait("a revocation", func() error { return g.grants.Revoke(addr) })
	testenv.Must(g.t, g.grants.Post())
	g.until("the end of a grant", func() bool { return g.grants.Revoked(addr) })
}

// bound waits until all binds are complete: a peer that learns of a grant without a SEND might use
// it too early.
func (g *granting) bound(n uint64) {
	g.t.Helper()
	g.until("grants to be made", func() bool {
		g.grants.Publish()
		return g.grants.Stats().Making.Count >= n
	})
}

// use makes the peer use a grant, and checks the status.
func (g *granting) use(op rdma.Op, to mr.Grant, at uint64, length uint32, want rdma.Status) {
	g.t.Helper()
	g.y.send(rdma.SendRequest{ID: 5, Op: op, Flags: rdma.Signaled, RemoteAddr: to.Addr + at, RKey: to.RKey}, g.sge(destination, length))
	g.y.want(5, want)
}

// TestGrants: a peer may access parts of a region until the grants are revoked.
func TestGrants(t *testing.T) {
	labenv.Guest(t)
	newBench(t, everything).run(map[string]func(*bench){"use": grantsUsed, "another": grantsOfAnother, "busy": grantsBusy, "allocate": grantsAllocate})
}

// grantsUsed: what a peer may do with a grant, and what it may not; each with its own queue pair.
func grantsUsed(b *bench) {
	const rw = rdma.RemoteWrite | rdma.RemoteRead
	for _, register := range []bool{false, true} {
		for name, f := range map[string]func(g *granting){
			"all of it": func(g *granting) {
				to := g.granted(rw)
				g.use(rdma.Write, to, 0, 1000, 0)
				g.use(rdma.Read, to, 999, 1, 0)
			},
			"behind it": func(g *granting) { g.use(rdma.Write, g.granted(rw), 999, 2, g.beyond()) },
			"in front":  func(g *granting) { g.use(rdma.Read, g.granted(rw), ^uint64(0), 2, g.beyond()) },
			"no read":   func(g *granting) { g.use(rdma.Read, g.granted(rdma.RemoteWrite), 0, 8, rdma.RemoteAccess) },
			"no write":  func(g *granting) { g.use(rdma.Write, g.granted(rdma.RemoteRead), 0, 8, rdma.RemoteAccess) },
			"revoked":   func(g *granting) { to := g.granted(rw); g.revoke(4096); g.use(rdma.Write, to, 0, 8, rdma.RemoteAccess) },
			"made anew": func(g *granting) { g.granted(rw); g.revoke(4096); g.use(rdma.Write, g.granted(rw), 0, 8, 0) },
			"the old rkey": func(g *granting) {
				to := g.granted(rw)
				g.revoke(4096)
				g.granted(rw)
				g.use(rdma.Write, to, 0, 8, rdma.RemoteAccess)
			},
			"evicted":   func(g *granting) { g.evicts(rw) },
			"only kept": func(g *granting) { to := g.granted(rw); g.grants.Release(4096); g.use(rdma.Write, to, 0, 8, 0) },
			"closed": func(g *granting) {
				to := g.granted(rw)
				testenv.Must(g.t, g.grants.Close())
				g.use(rdma.Write, to, 0, 8, rdma.RemoteAccess)
			},
		} {
			b.t.Run(fmt.Sprintf("register=%v/%s", register, name), func(t *testing.T) { f(b.on(t).granting(4, 8, register)) })
		}
	}
}

// beyond returns the status of a request beyond a grant. Soft-RoCE does not enforce the bounds of
// windows, so only tests use them.
func (g *granting) beyond() rdma.Status {
	if g.grants.Windows() {
		return rdma.Success
	}
	return rdma.RemoteAccess
}

// granted grants 1000 bytes from 4096 on.
func (g *granting) granted(a rdma.Access) mr.Grant {
	g.t.Helper()
	g.grants.Publish()
	before := g.grants.Stats().Making.Count
	to := g.grant(4096, 1000, a)
	g.bound(before + 1)
	return to
}

// evicts checks that the grant that was released longest ago ends when there is no room.
func (g *granting) evicts(a rdma.Access) {
	g.t.Helper()
	var to []mr.Grant
	for n := range uint64(4) {
		to = append(to, g.grant(n*8192, 100, a))
	}
	for _, n := range []uint64{2, 1} {
		g.grants.Release(n * 8192)
	}
	if _, err := g.grants.Grant(3*8192, 200, a); err == nil {
		g.t.Error("other bytes from an address were granted")
	}
	to = append(to, g.grant(9*8192, 100, a))
	g.bound(5)
	g.use(rdma.Write, to[4], 0, 100, rdma.Success)
	if again := g.grant(8192, 100, a); again != to[1] {
		g.t.Errorf("the grant that was kept is %+v now, it was %+v", again, to[1])
	}
	if _, err := g.grants.Grant(11*8192, 100, a); err == nil {
		g.t.Error("five grants of four")
	}
	for _, n := range []int{0, 1, 3} {
		g.use(rdma.Write, to[n], 0, 100, rdma.Success)
	}
	g.use(rdma.Write, to[2], 0, 100, rdma.RemoteAccess)
	g.grants.Publish()
	if s := g.grants.Stats(); s.Hits != 1 || s.Misses != 5 || s.Evictions != 1 || s.Outstanding != 4 || s.Making.Count != 5 || s.Revoking.Count != 1 {
		g.t.Errorf("%+v", s)
	}
}

// grantsOfAnother: only the peer of its queue pair can use a window.
func grantsOfAnother(b *bench) {
	g := b.granting(4, 8, false)
	if !g.grants.Windows() {
		b.t.Fatal("there are no windows")
	}
	other := b.granting(4, 8, false)
	to := g.granted(rdma.RemoteWrite)
	other.use(rdma.Write, to, 0, 8, rdma.RemoteAccess)
	g.use(rdma.Write, to, 0, 8, rdma.Success)
}

// grantsBusy: the cache posts no more requests than allowed, and loses none.
func grantsBusy(b *bench) {
	g := b.granting(64, 4, false)
	busy := 0
	for n := range uint64(64) {
		if _, err := g.grants.Grant(n*4096, 4096, rdma.RemoteWrite); errors.Is(err, mr.ErrBusy) {
			busy++
			g.grant(n*4096, 4096, rdma.RemoteWrite)
		}
	}
	for n := range uint64(64) {
		g.revoke(n * 4096)
	}
	g.grants.Publish()
	if s := g.grants.Stats(); busy == 0 || s.Misses != 64 || s.Making.Count != 64 || s.Revoking.Count != 64 || s.Outstanding != 0 || s.Failed != 0 {
		b.t.Errorf("busy %d times, %+v", busy, s)
	}
}

// grantsAllocate: a window is bound, revoked, kept and reused without allocation.
func grantsAllocate(b *bench) {
	g := b.granting(4, 8, false)
	if n := testenv.AllocsPerRun(b.t, 100, g.round); n > 0 {
		b.t.Errorf("%v allocations", n)
	}
}

// round makes a grant, reuses it and revokes it.
func (g *granting) round() {
	for range 2 {
		if _, err := g.grants.Grant(4096, 4096, rdma.RemoteWrite); err != nil {
			g.t.Fatal(err)
		}
		g.grants.Release(4096)
	}
	testenv.Must(g.t, errors.Join(g.grants.Revoke(4096), g.grants.Post()))
	for end := time.Now().Add(10 * time.Second); !g.grants.Revoked(4096); g.take() {
		if time.Now().After(end) {
			g.t.Fatal("the grant did not end in 10 s")
		}
	}
}
