package blocks

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/unifiedd/unifiedd/flows/protocol"
	"github.com/unifiedd/unifiedd/internal/testenv"
	"github.com/unifiedd/unifiedd/rdma"
	"github.com/unifiedd/unifiedd/rdma/connect"
	"github.com/unifiedd/unifiedd/umem"
)

// small returns a server's region and its configuration, for tests of failures.
func small() (umem.Config, Config) {
	return withExtents(56), Config{Clients: 3, Window: 8, Transfer: 1 << 20}
}

// forge sends a request that Submit would refuse. request changes the fields of the request,
// message changes its bytes.
func (u *customer) forge(request func(*protocol.Request), message func([]byte)) {
	u.Helper()
	start, room := u.region.Start(u.frames[0])
	g, err := u.grants.Grant(start, room, rdma.RemoteWrite)
	testenv.Must(u, err)
	u.ask(Read{Frame: u.frames[0]}, g, 0)
	cell := u.cells.Bytes(u.Client.config.Window + int(u.list.Sends[len(u.list.Sends)-1].ID>>16))
	q, reason := protocol.ParseRequest(cell)
	if reason != protocol.None {
		u.Fatal(reason)
	}
	if request != nil {
		request(&q)
	}
	protocol.PutRequest(cell, &q)
	if message != nil {
		message(cell)
	}
}

// TestRefused: the server refuses a valid message whose request cannot be served, with the reason.
// The client continues.
func TestRefused(t *testing.T) {
	region, c := small()
	c.Permit = func(connect.Peer, protocol.Hello) (Range, error) { return Range{Offset: 8192, Length: 4 << 20}, nil }
	g := newRig(t, region)
	v := g.far.serve(newDisk(t, diskSize), c)
	u := g.near.newCustomer(v, ClientConfig{}, 1, 1)
	for name, one := range map[string]struct {
		change func(*protocol.Request)
		want   protocol.Reason
	}{
		"zero length":       {func(q *protocol.Request) { q.Length = 0 }, protocol.OutOfRange},
		"overflow":          {func(q *protocol.Request) { q.Offset = math.MaxUint64 - 511 }, protocol.OutOfRange},
		"overflow there":    {func(q *protocol.Request) { q.Address = math.MaxUint64 - 511 }, protocol.OutOfRange},
		"beyond the end":    {func(q *protocol.Request) { q.Offset = diskSize }, protocol.OutOfRange},
		"over the end":      {func(q *protocol.Request) { q.Offset, q.Length = diskSize-4096, 8192 }, protocol.OutOfRange},
		"very far":          {func(q *protocol.Request) { q.Offset = 1 << 62 }, protocol.OutOfRange},
		"too long":          {func(q *protocol.Request) { q.Length = 1<<20 + 4096 }, protocol.TooLong},
		"longest number":    {func(q *protocol.Request) { q.Length = math.MaxUint32 &^ 4095 }, protocol.TooLong},
		"unaligned offset":  {func(q *protocol.Request) { q.Offset = 8193 }, protocol.Unaligned},
		"unaligned length":  {func(q *protocol.Request) { q.Offset, q.Length = 8192, 4095 }, protocol.Unaligned},
		"in front":          {func(q *protocol.Request) { q.Offset = 4096 }, protocol.NotPermitted},
		"behind":            {func(q *protocol.Request) { q.Offset = 4<<20 + 8192 }, protocol.NotPermitted},
		"over the part end": {func(q *protocol.Request) { q.Offset, q.Length = 4<<20+4096, 8192 }, protocol.NotPermitted},
	} {
		u.forge(one.change, nil)
		if d := u.await(1)[0]; d.Err != one.want {
			t.Errorf("%s: %v instead of %v", name, d.Err, one.want)
		}
	}
	u.submit(Read{Offset: 8192, Frame: u.frames[0]})
	u.verify(u.await(1)[0])
	if st := v.settled(); st.Refused[protocol.OutOfRange] != 6 || st.Refused[protocol.NotPermitted] != 3 || st.Ended != 0 || st.Clients[0].Refused[protocol.TooLong] != 2 {
		t.Errorf("%+v", st)
	}
}

// lost waits until the client notices that the server has ended it.
func (u *customer) lost() error {
	u.Helper()
	var one [1]Done
	for end := time.Now().Add(waitLimit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if n, err := u.Poll(one[:]); n == 0 && err != nil {
			return err
		}
	}
	u.Fatalf("the client was not ended: %+v", u.served.server.Stats())
	return nil
}

// TestOffenders: the server ends a client that breaks the rules, and counts the reason. Other
// clients are not affected.
func TestOffenders(t *testing.T) {
	region, c := small()
	g := newRig(t, region)
	v := g.far.serve(newDisk(t, diskSize), c)
	good := g.near.newCustomer(v, ClientConfig{}, 8, 4)
	for _, one := range []struct {
		name   string
		offend func(u *customer)
		reason protocol.Reason // counted, if not 0
	}{
		{"bad checksum", func(u *customer) { u.forge(nil, func(b []byte) { b[20] ^= 1 }) }, protocol.BadHeader},
		{"bad magic", func(u *customer) { u.forge(nil, func(b []byte) { b[0] ^= 1 }) }, protocol.BadMagic},
		{"other version", func(u *customer) { u.forge(nil, func(b []byte) { b[4] = 2 }) }, protocol.BadVersion},
		{"unknown kind", func(u *customer) { u.forge(nil, func(b []byte) { b[5] = 200 }) }, protocol.BadKind},
		{"response", func(u *customer) {
			u.forge(nil, func(b []byte) { protocol.PutResponse(b, &protocol.Response{Status: protocol.Busy}) })
		}, protocol.BadMagic},
		{"zeros", func(u *customer) { u.forge(nil, func(b []byte) { clear(b) }) }, protocol.BadMagic},
		{"short", func(u *customer) { u.forge(nil, nil); u.list.SendSGEs[0].Length = 63 }, protocol.BadLength},
		{"empty", func(u *customer) { u.forge(nil, nil); u.list.SendSGEs[0].Length = 0 }, protocol.BadLength},
		{"long", func(u *customer) { u.forge(nil, nil); u.list.SendSGEs[0].Length = 65 }, 0},
		{"wrong rkey", func(u *customer) { u.forge(func(q *protocol.Request) { q.Length = 4096; q.RKey ^= 0x5500 }, nil) }, 0},
		{"wrong address", func(u *customer) { u.forge(func(q *protocol.Request) { q.Length = 4096; q.Address += 1 << 20 }, nil) }, 0},
		{"longer than granted", func(u *customer) { u.forge(func(q *protocol.Request) { q.Length = 8192 }, nil) }, 0},
		{"WRITE with immediate", func(u *customer) { u.forge(nil, nil); u.list.Sends[0].Op = rdma.WriteImmediate }, 0},
		{"WRITE", func(u *customer) { u.forge(nil, nil); u.list.Sends[0].Op = rdma.Write; u.list.Sends[0].RKey = 0x100 }, 0},
	} {
		t.Run(one.name, func(t *testing.T) {
			before := v.server.Stats()
			u := g.near.newCustomer(v, ClientConfig{}, 4, 0)
			u.TB = t
			one.offend(u)
			if err := u.lost(); one.reason != protocol.None && !strings.Contains(err.Error(), "the server ends it") && !errors.Is(err, rdma.WorkFlushed) && !errors.Is(err, rdma.RetryExceeded) {
				t.Logf("the client learns: %v", err)
			}
			good.get(4096, good.extents[0], nearExtent)
			testenv.Wait(t, waitLimit, "the client is still there", func() bool { return len(v.server.Stats().Clients) == 1 })
			st := v.server.Stats()
			if one.reason != protocol.None && (st.Ended != before.Ended+1 || st.Refused[one.reason] != before.Refused[one.reason]+1) {
				t.Errorf("before %+v, after %+v", before, st)
			}
		})
	}
}

// TestBeyondWindow: the server ends a client with more outstanding requests than its window, and
// answers every request of the others.
func TestBeyondWindow(t *testing.T) {
	region, c := small()
	c.Window = 4
	g := newRig(t, region)
	v := g.far.serve(newDisk(t, diskSize), c)
	good, bad := g.near.newCustomer(v, ClientConfig{}, 8, 4), g.near.newCustomer(v, ClientConfig{Window: 32}, 32, 0)
	if bad.Window() != 4 {
		t.Fatalf("the window is %d", bad.Window())
	}
	bad.window = 32     // as if the server had allowed it
	release := v.hold() // the requests arrive together
	for i := range 32 {
		bad.submit(Read{Offset: uint64(i) * 4096, Frame: bad.frames[i]})
	}
	_, err := bad.Poll(nil)
	testenv.Must(t, err)
	time.Sleep(10 * time.Millisecond)
	release()
	bad.lost()
	good.readMuch(4, 20)
	testenv.Wait(t, waitLimit, "the client is still there", func() bool { return len(v.server.Stats().Clients) == 1 })
	if st := v.server.Stats(); st.Refused[protocol.BeyondCredit] != 1 || st.Ended != 1 {
		t.Errorf("%+v", st)
	}
}

// TestVanish: if a client vanishes during WRITEs, the server gets all its buffers back, and other
// clients are not affected.
func TestVanish(t *testing.T) {
	for _, cache := range caches() {
		t.Run(fmt.Sprint(cache), func(t *testing.T) { vanish(t, cache) })
	}
}

// vanish runs TestVanish with a cache size.
func vanish(t *testing.T, cache uint64) {
	region, c := small()
	c.Cache = cache
	g := newRig(t, region)
	v := g.far.serve(newDisk(t, diskSize), c)
	good := g.near.newCustomer(v, ClientConfig{}, 8, 4)
	for range 3 {
		u := g.near.newCustomer(v, ClientConfig{}, 8, 8)
		for i := range 8 {
			u.submit(Read{Offset: uint64(i) * nearExtent % (diskSize - nearExtent), Frame: u.extents[i]})
		}
		_, err := u.Poll(nil)
		testenv.Must(t, err)
		testenv.Must(t, u.qp.Close()) // like a killed program: nothing answers
		u.qp = nil
		testenv.Must(t, u.conn.Close())
		good.readMuch(4, 10)
	}
	testenv.Wait(t, waitLimit, "clients that are gone are still there", func() bool { return len(v.server.Stats().Clients) == 1 })
	v.settled()
	testenv.Must(t, v.do(func() error {
		for i := range v.server.caches {
			if s := &v.server.caches[i].share; s.sum != 0 {
				t.Errorf("%d buffers are in use by nobody", s.sum)
			}
		}
		return nil
	}))
}

// TestStrangers: the server refuses a client that requests another flow or that Permit refuses,
// with a text.
func TestStrangers(t *testing.T) {
	region, c := small()
	c.Clients = 1
	denied := errors.New("not today")
	c.Permit = func(p connect.Peer, h protocol.Hello) (Range, error) {
		if h.Flow == "" {
			return Range{}, denied
		}
		return Range{}, nil
	}
	g := newRig(t, region)
	v := g.far.serve(newDisk(t, diskSize), c)
	u := g.near.newCustomer(v, ClientConfig{Flow: "blocks"}, 1, 0)
	refused := func(c ClientConfig, says string) {
		t.Helper()
		var err error
		g.near.ns.Do(t, func() { _, err = Dial(context.Background(), u.config(c)) })
		if connect.ReasonOf(err) != connect.ReasonRefused || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v instead of %q", c.Flow, err, says)
		}
	}
	elsewhere := netip.MustParseAddr("192.0.2.1") // near and far may be one machine
	g.near.ns.Do(t, func() {
		h, err := (&protocol.Hello{Role: protocol.RoleBlocks, Flow: "blocks"}).Append(nil)
		testenv.Must(t, err)
		_, err = connect.Dial(context.Background(), v.address, connect.End{Elsewhere: true, Hello: h,
			Parameters: connect.Parameters{Transport: rdma.RC, QPN: 17, MTU: rdma.MTU1024, GID: rdma.GIDOf(elsewhere)}}, connect.Config{})
		if connect.ReasonOf(err) != connect.ReasonRefused || !strings.Contains(err.Error(), "allow_any_gid: true") {
			t.Errorf("a GID of another machine: %v", err)
		}
	})
	refused(ClientConfig{Flow: "else"}, `flow "blocks" is served here, not "else"`)
	refused(ClientConfig{}, denied.Error())
	refused(ClientConfig{Flow: "blocks"}, "all are taken")
	u.submit(Read{Frame: u.frames[0]})
	u.verify(u.await(1)[0])
	u.check(u.Client.Close())
	testenv.Wait(t, waitLimit, "the place is not free again", func() bool { return len(v.server.Stats().Clients) == 0 })
	u.dial(ClientConfig{Flow: "blocks", Window: 2})
	u.submit(Read{Frame: u.frames[0]})
	u.verify(u.await(1)[0])
	if st := v.server.Stats(); st.Ended != 0 {
		t.Errorf("%+v", st)
	}
}

// TestForgedAnswers: a client closes the connection if a server answers a request that it did not
// make, or sends an invalid answer.
func TestForgedAnswers(t *testing.T) {
	region, c := small()
	g := newRig(t, region)
	v := g.far.serve(newDisk(t, diskSize), c)
	for name, op := range map[string]func(id uint32, s *session) rdma.SendRequest{
		"another id": func(id uint32, s *session) rdma.SendRequest {
			r := rdma.SendRequest{Op: rdma.WriteImmediate}
			binary.BigEndian.PutUint32(r.Immediate[:], id+1)
			return r
		},
		"an old id": func(id uint32, s *session) rdma.SendRequest {
			r := rdma.SendRequest{Op: rdma.WriteImmediate}
			binary.BigEndian.PutUint32(r.Immediate[:], id-1<<16)
			return r
		},
		"an empty response": func(id uint32, s *session) rdma.SendRequest { return rdma.SendRequest{Op: rdma.Send} },
	} {
		u := g.near.newCustomer(v, ClientConfig{}, 1, 0)
		u.submit(Read{Frame: u.frames[0]})
		id := u.slots[u.list.Sends[0].ID>>16].id(int32(u.list.Sends[0].ID >> 16))
		testenv.Must(t, v.do(func() error {
			for i := range v.server.sessions {
				if p := &v.server.sessions[i]; p.state == sessionOpen {
					r := op(id, p)
					r.ID, r.Flags = 1<<62, rdma.Signaled
					_, err := p.qp.PostSend([]rdma.SendRequest{r}, nil)
					return err
				}
			}
			return nil
		}))
		if err := u.lost(); name != "an empty response" && !errors.Is(err, errStray) || name == "an empty response" && !errors.Is(err, protocol.BadLength) {
			t.Errorf("%s: %v", name, err)
		}
		testenv.Wait(t, waitLimit, "the client is still there", func() bool { return len(v.server.Stats().Clients) == 0 })
	}
}
