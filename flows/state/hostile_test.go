package state

import (
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/attach/wire"
	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/flows/stream"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/rdma/roce/rocetest"
	"github.com/unifiedd/unifiedd/umem"
)

// raw is a reader without a library, which may post any request. It has a device of its own at the near host.
type raw struct {
	g      *rig
	region *umem.Region
	at     *stream.Endpoint
	frame  umem.Frame
	grant  connect.Grant
	pair   rdma.QueuePair
	queue  rdma.CompletionQueue
	status rdma.Status // of the last request
}

func newRaw(g *rig) *raw {
	g.t.Helper()
	g.must(g.near.Close()) // it has the interface
	w := &raw{g: g}
	region, d := rocetest.At(&g.A).Start(g.t, umem.Config{Size: 16 << 20, Pages: umem.Ordinary, FrameSize: 4096})
	var err error
	w.region = region
	w.at, err = stream.OpenEndpoint(d, region)
	g.must(err)
	g.close(w.at.Close)
	book := w.region.NewBook("raw")
	g.close(book.Close)
	h, err := book.NewHolder(umem.OwnerRDMA, "raw")
	g.must(err)
	g.close(func() error { h.Close(); return nil })
	one := []umem.Frame{{}}
	h.Take(one)
	w.frame = one[0]
	w.connect(0)
	g.close(func() error { return w.queue.Close() })
	g.close(func() error { return w.pair.Close() })
	return w
}

// connect makes a new queue pair to a server.
func (w *raw) connect(server int) {
	g := w.g
	g.t.Helper()
	if w.pair != nil {
		g.must(w.pair.Close())
		g.must(w.queue.Close())
	}
	var err error
	w.queue, err = w.at.Device.NewCompletionQueue(rdma.CompletionQueueConfig{Depth: 4})
	g.must(err)
	w.pair, err = w.at.Domain.NewQueuePair(rdma.QueuePairConfig{Transport: rdma.RC, SendCQ: w.queue, ReceiveCQ: w.queue, SendDepth: 4, RecvDepth: 1, SendSGEs: 1, RecvSGEs: 1})
	g.must(err)
	g.A.Do(g.t, func() {
		address := g.servers[server].Addr().String()
		settings, err := w.at.SettingsTo(g.t.Context(), address)
		g.must(err)
		settings.RNRRetries, settings.MinRNRTimer = 1, 1 // the server has no receives
		end := connect.End{Queue: w.pair, Settings: settings}
		end.Parameters, err = connect.Prepare(w.at.Device, w.pair, settings)
		g.must(err)
		h := protocol.Hello{Role: protocol.RoleState, Flow: g.set.All()[server].Name()}
		end.Hello, err = h.Append(nil)
		g.must(err)
		c, err := connect.Dial(g.t.Context(), address, end, connect.Config{})
		g.must(err)
		w.grant, err = c.Remote().Grant(Grant)
		g.must(err)
		g.close(c.Close)
	})
}

// do posts a request about length bytes, and waits for it.
func (w *raw) do(r rdma.SendRequest, length uint32) []byte {
	w.g.t.Helper()
	r.Flags, r.SGEs = rdma.Signaled, 1
	sge := rdma.SGE{Addr: w.at.Memory.Addr() + w.frame.Addr, Length: length, LKey: w.at.Memory.LKey()}
	if _, err := w.pair.PostSend([]rdma.SendRequest{r}, []rdma.SGE{sge}); err != nil {
		w.g.t.Fatal(err)
	}
	var done [1]rdma.WorkCompletion
	for end := time.Now().Add(testenv.Within(30 * time.Second)); ; {
		n, err := w.queue.Spin(done[:], time.Millisecond)
		if err != nil || time.Now().After(end) {
			w.g.t.Fatal("the request does not complete:", err)
		}
		if n > 0 {
			w.status = done[0].Status
			return w.region.At(w.frame.Addr, uint64(length))
		}
	}
}

// read READs from an address of the grant.
func (w *raw) read(addr uint64, length uint32) []byte {
	w.g.t.Helper()
	return w.do(rdma.SendRequest{Op: rdma.Read, RemoteAddr: addr, RKey: w.grant.RKey}, length)
}

// TestRemoteIsReadOnly: a reader gets an error for everything but a READ within the grant, also with the key of another
// state, and the memory stays as it was.
func TestRemoteIsReadOnly(t *testing.T) {
	g := newRig(t, 64, nil, Config{Name: "book", Objects: 8, Room: 100}, Config{Name: "other", Objects: 8, Room: 100})
	s := g.set.Find("book")
	s.Apply(wire.AppendPutObject(nil, 3, []byte("content")))
	before := string(g.region.At(s.Part().Base(), s.Size()))
	w := newRaw(g)
	key, size := w.grant.RKey, w.grant.Length
	if w.grant.Access != rdma.RemoteRead || size != s.Size() || w.grant.Addr != g.servers[0].memory.Addr() {
		t.Fatalf("granted %+v", w.grant)
	}
	w.connect(1)
	other := w.grant
	w.connect(0)
	from := w.grant.Addr
	if w.read(from, 64); w.status != rdma.Success {
		t.Fatalf("a READ of the head: %v", w.status)
	}
	for name, one := range map[string]struct {
		r      rdma.SendRequest
		length uint32
	}{
		"READ across the end":         {rdma.SendRequest{Op: rdma.Read, RemoteAddr: from + size - 8, RKey: key}, 16},
		"READ before the grant":       {rdma.SendRequest{Op: rdma.Read, RemoteAddr: from - 8, RKey: key}, 16},
		"READ of the region's frames": {rdma.SendRequest{Op: rdma.Read, RemoteAddr: 0, RKey: key}, 64},
		"READ with another key":       {rdma.SendRequest{Op: rdma.Read, RemoteAddr: from, RKey: key ^ 0x100}, 64},
		"READ of another state":       {rdma.SendRequest{Op: rdma.Read, RemoteAddr: other.Addr, RKey: other.RKey}, 64},
		"READ with the region's key":  {rdma.SendRequest{Op: rdma.Read, RemoteAddr: 0, RKey: g.at.Memory.RKey()}, 64},
		"WRITE":                       {rdma.SendRequest{Op: rdma.Write, RemoteAddr: from + 4096, RKey: key}, 64},
		"WRITE with immediate":        {rdma.SendRequest{Op: rdma.WriteImmediate, RemoteAddr: from + 4096, RKey: key}, 64},
		"WRITE with the region's key": {rdma.SendRequest{Op: rdma.Write, RemoteAddr: 0, RKey: g.at.Memory.RKey()}, 64},
		"fetch-and-add":               {rdma.SendRequest{Op: rdma.FetchAdd, RemoteAddr: from + 4096, RKey: key, Compare: 1}, 8},
		"compare-and-swap":            {rdma.SendRequest{Op: rdma.CompareSwap, RemoteAddr: from + 4096, RKey: key, Swap: 1}, 8},
		"invalidation of the grant":   {rdma.SendRequest{Op: rdma.SendInvalidate, Immediate: rdma.Invalidate(key)}, 8},
	} {
		w.connect(0)
		if w.do(one.r, one.length); w.status == rdma.Success {
			t.Errorf("%s succeeds", name)
		}
	}
	if after := string(g.region.At(s.Part().Base(), s.Size())); after != before {
		t.Error("the memory has changed")
	}
	w.connect(0)
	if w.read(from, 64); w.status != rdma.Success {
		t.Errorf("afterwards, a READ of the head: %v", w.status)
	}
}
