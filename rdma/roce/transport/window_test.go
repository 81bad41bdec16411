package transport

import (
	"errors"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/rdma"
)

// TestWindow: a peer can use a bound window until either end invalidates it.
func TestWindow(t *testing.T) {
	for _, remote := range []bool{false, true} {
		w := newWorld(t, 1, Config{})
		a, b := w.pair(options{})
		from, to := w.ends[0], w.ends[1]
		win, err := to.keys.NewWindow(testDomain)
		must(t, err)
		old := win.RKey()
		must(t, b.Bind(1, win, to.key, to.base+4096, 4096, rdma.RemoteWrite, 0))
		if win.RKey() == old {
			t.Error("the key is the old one")
		}
		w.run(time.Millisecond)
		to.want(t, "1 bind")
		if err := to.keys.Deregister(to.key); !errors.Is(err, errWindows) {
			t.Errorf("the registration ended under its window: %v", err)
		}
		want := from.fill(0, 3000, 4)
		send(t, a, rdma.SendRequest{ID: 2, Op: rdma.Write, RemoteAddr: to.base + 4096 + 1096, RKey: win.RKey()}, from.sge(0, 3000))
		w.run(time.Millisecond)
		from.want(t, "2 WRITE")
		same(t, "WRITE", to.memory(4096+1096, 3000), want)
		if remote {
			receiveInto(t, b, 3, to.sge(0, 10))
			send(t, a, rdma.SendRequest{ID: 3, Op: rdma.SendInvalidate, Immediate: rdma.Invalidate(win.RKey())})
			w.run(time.Millisecond)
			if c := to.done[0]; c.Flags != rdma.HasInvalidated || c.Invalidated() != win.RKey() {
				t.Errorf("flags %x, key %#x", c.Flags, c.Invalidated())
			}
			to.want(t, "3 receive 0")
			from.want(t, "3 SEND")
		} else {
			send(t, b, rdma.SendRequest{ID: 3, Op: rdma.LocalInvalidate, Immediate: rdma.Invalidate(win.RKey())})
			w.run(time.Millisecond)
			to.want(t, "3 local invalidate")
		}
		w.windowEnded(a, b, win)
	}
}

// windowEnded binds the window again, then checks that the previous key is invalid and that the
// access rights are enforced.
func (w *world) windowEnded(a, b *QueuePair, win *Window) {
	t, from, to := w.t, w.ends[0], w.ends[1]
	old := win.RKey()
	must(t, b.Bind(4, win, to.key, to.base, 4096, rdma.RemoteRead, 0))
	w.run(time.Millisecond)
	to.want(t, "4 bind")
	send(t, a, rdma.SendRequest{ID: 5, Op: rdma.Read, RemoteAddr: to.base, RKey: win.RKey()}, from.sge(0, 4096))
	send(t, a, rdma.SendRequest{ID: 6, Op: rdma.Write, RemoteAddr: to.base, RKey: old}, from.sge(0, 1))
	w.run(time.Second)
	from.want(t, "5 READ", "6 IBV_WC_REM_ACCESS_ERR")
	to.keys.CloseWindow(win)
	to.keys.CloseWindow(win)
	must(t, to.keys.Deregister(to.key))
	if _, err := to.keys.NewWindow(testDomain); err != nil {
		t.Error(err)
	}
}

// TestWindowRefused: an invalid bind fails and ends the queue pair.
func TestWindowRefused(t *testing.T) {
	for _, c := range []struct {
		name         string
		addr, length uint64
		domain       Domain
		access       rdma.Access
		twice        bool
	}{{"beyond the end", extentSize - 10, 11, testDomain, rdma.RemoteRead, false}, {"of nothing", 0, 0, testDomain, rdma.RemoteRead, false},
		{"of another domain", 0, 10, testDomain + 1, rdma.RemoteRead, false}, {"bound", 0, 10, testDomain, rdma.RemoteRead, true}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 1, Config{})
			_, b := w.pair(options{})
			to := w.ends[1]
			win, err := to.keys.NewWindow(c.domain)
			must(t, err)
			if c.twice {
				must(t, b.Bind(1, win, to.key, to.base, 100, c.access, 0))
			}
			must(t, b.Bind(2, win, to.key, to.base+c.addr, c.length, c.access, 0))
			w.run(time.Millisecond)
			if last := to.done[len(to.done)-1]; last.Status != rdma.WindowBind || b.State() != rdma.Error {
				t.Errorf("ended with %v, in %v", last.Status, b.State())
			}
		})
	}
}

// TestWindowOfAnother: the peer of another queue pair cannot use a window, and a window's key is
// not an lkey.
func TestWindowOfAnother(t *testing.T) {
	w := newWorld(t, 1, Config{})
	_, b := w.pair(options{})
	a, _ := w.pair(options{})
	from, to := w.ends[0], w.ends[1]
	win, err := to.keys.NewWindow(testDomain)
	must(t, err)
	must(t, b.Bind(1, win, to.key, to.base, 100, rdma.RemoteWrite, 0))
	w.run(time.Millisecond)
	send(t, a, rdma.SendRequest{ID: 6, Op: rdma.Write, RemoteAddr: to.base, RKey: win.RKey()}, from.sge(0, 1))
	w.run(time.Second)
	from.want(t, "6 IBV_WC_REM_ACCESS_ERR")
	send(t, b, rdma.SendRequest{ID: 7, Op: rdma.Write}, rdma.SGE{Addr: to.base, Length: 4, LKey: win.RKey()})
	w.run(time.Second)
	if last := to.done[len(to.done)-1]; last.Status != rdma.LocalProtection {
		t.Errorf("a window is used as lkey: %v", last.Status)
	}
}

// TestKeyGenerations: when a place in the table is reused, all of its old keys are invalid.
func TestKeyGenerations(t *testing.T) {
	k, err := NewKeys(1<<20, 1)
	must(t, err)
	var old uint32
	for range 300 {
		key, err := k.Register(testDomain, 0, 100, 0)
		must(t, err)
		if old != 0 && (key == old || k.of(old) != nil) {
			t.Fatalf("key %#x is good after key %#x", old, key)
		}
		if _, err := k.Register(testDomain, 0, 100, 0); err == nil {
			t.Fatal("two keys in a table for one")
		}
		must(t, k.Deregister(key))
		old = key
	}
	for _, c := range []struct{ addr, length uint64 }{{0, 0}, {1 << 20, 1}, {1<<20 - 1, 2}, {^uint64(0), 2}, {1, ^uint64(0)}} {
		if _, err := k.Register(testDomain, c.addr, c.length, 0); err == nil {
			t.Errorf("%d bytes from %#x were registered", c.length, c.addr)
		}
	}
	if _, err := k.Register(testDomain, 0, 1, rdma.RemoteWrite); err == nil {
		t.Error("a peer may write what we may not")
	}
}
